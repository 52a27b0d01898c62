#include "ingot/config/preset_fit.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ingot/config/config_keys.h"
#include "ingot/config/run_plan.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

// The length of a run in its own unit, and in steps and tokens as far as they are known in advance. In a
// run that counts steps, `tokens` ignores the batch ramp.
struct Extent {
  RunLength length;
  double steps = 0, tokens = 0;
};

Extent extent_of(RunConfig config) {
  config.schedule = ScheduleConfig{};  // only the length matters here, whether or not the schedule fits it
  const RunPlan plan(config);
  const auto steps = static_cast<double>(plan.steps());
  const TrainConfig& train = config.train;
  const double step_tokens = static_cast<double>(train.batch_size) * static_cast<double>(train.grad_accum) *
                             static_cast<double>(config.model.context);
  return {.length = plan.length(),
          .steps = steps,
          .tokens = plan.length().unit == RunUnit::kTokens ? plan.length().total : steps * step_tokens};
}

std::string value_of(const RunConfig& config, std::string_view key) {
  const ConfigKey* found = find_config_key(key);
  INGOT_CHECK(found, "fit_preset: no key is called {}", key);
  return found->toml(config);
}

using IsFrom = std::function<bool(std::string_view key)>;

class PresetFit {
 public:
  PresetFit(RunConfig& config, const RunConfig& preset, const IsFrom& is_from_preset)
      : config_(config), preset_(preset), is_from_preset_(is_from_preset) {}

  // Unsets the preset's other measure of the run's length if the user gave one.
  void choose_length(const IsFrom& is_from_user) {
    TrainConfig& train = config_.train;
    const bool by_time = is_from_user("train.max_time") && train.max_time_s > 0;
    const bool by_tokens = is_from_user("train.max_tokens") && train.max_tokens > 0;
    if (!by_time && !by_tokens && !is_from_user("train.steps")) return;
    if (!by_time && train.max_time_s > 0) change("train.max_time", [&] { train.max_time_s = 0; });
    if (!by_tokens && train.max_tokens > 0) change("train.max_tokens", [&] { train.max_tokens = 0; });
  }

  void fit_batch_ramp() {
    auto& ramp = config_.train.batch_ramp;
    const auto is_too_large = [&](const BatchStage& stage) {
      return stage.micro_batches >= config_.train.grad_accum;
    };
    if (std::any_of(ramp.begin(), ramp.end(), is_too_large))
      change("train.batch_ramp", [&] { std::erase_if(ramp, is_too_large); });
    const Extent was = extent_of(preset_), now = extent_of(config_);
    if (ramp.empty() || now.length.unit == RunUnit::kTime) return;
    if (static_cast<double>(ramp.back().until_tokens) < now.tokens || now.tokens >= was.tokens) return;
    change("train.batch_ramp", [&] {
      int64_t last = 0;
      for (BatchStage& stage : ramp) {
        const double until = static_cast<double>(stage.until_tokens) / was.tokens * now.tokens;
        last = stage.until_tokens = std::max<int64_t>(last + 1, std::llround(until));
      }
    });
  }

  void fit_schedule() {
    const Extent was = extent_of(preset_), now = extent_of(config_);
    ScheduleConfig& schedule = config_.schedule;
    if (now.length.unit != RunUnit::kTime) {
      fit_count("schedule.decay_steps", schedule.decay_steps, was.steps, now.steps);
      const double end = schedule.decay_steps > 0 ? static_cast<double>(schedule.decay_steps) : now.steps;
      fit_count("schedule.warmup_steps", schedule.warmup_steps, was.steps, end);
      fit_count("schedule.cooldown_steps", schedule.cooldown_steps, was.steps, end);
      fit_count("schedule.decay_tokens", schedule.decay_tokens, was.tokens, now.tokens);
      fit_count("schedule.warmup_tokens", schedule.warmup_tokens, was.tokens, now.tokens);
    } else {  // The end of a run by time is that of its decay.
      change("schedule.decay_steps", [&] { schedule.decay_steps = 0; });
      change("schedule.decay_tokens", [&] { schedule.decay_tokens = 0; });
    }
    fit_phases("schedule.phases", schedule.phases, was.length, now.length);
    fit_phases("schedule.momentum", schedule.momentum, was.length, now.length);
    fit_phases("schedule.window", schedule.window, was.length, now.length);
  }

  std::vector<std::string> take_notes() { return std::move(notes_); }

 private:
  // If the key's value is still the preset's, applies the edit and adds a note about it.
  template <typename Edit>
  void change(std::string_view key, const Edit& edit) {
    if (!is_from_preset_(key)) return;
    const std::string old = value_of(config_, key);
    edit();
    const std::string now = value_of(config_, key);
    if (now == old) return;
    notes_.push_back(fmt::format("{} = {} of the preset {} does not fit this run and is {} here", key, old,
                                 preset_.preset, now));
  }

  // Scales a count that is longer than the run to the same fraction of it as in the preset.
  void fit_count(std::string_view key, int64_t& count, double was, double now) {
    if (static_cast<double>(count) <= now) return;
    change(key, [&] {
      const double part = std::min(1.0, static_cast<double>(count) / std::max(1.0, was));
      count = std::llround(part * now);
    });
  }

  void fit_phases(std::string_view key, std::vector<Phase>& phases, const RunLength& was,
                  const RunLength& now) {
    double counted = 0;
    for (const Phase& phase : phases)
      if (phase.kind == Phase::Length::kCount) counted += phase.length;
    if (counted == 0 || (was.unit == now.unit && counted <= now.total)) return;
    change(key, [&] {
      for (Phase& phase : phases)
        if (phase.kind == Phase::Length::kCount)
          phase.length = std::floor(phase.length / was.total * now.total);
    });
  }

  RunConfig& config_;
  const RunConfig& preset_;
  const IsFrom& is_from_preset_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::string> fit_preset(RunConfig& config, const RunConfig& preset, const IsFrom& is_from_preset,
                                    const IsFrom& is_from_user) {
  PresetFit fit(config, preset, is_from_preset);
  fit.choose_length(is_from_user);
  fit.fit_batch_ramp();
  fit.fit_schedule();
  return fit.take_notes();
}

}  // namespace ingot
