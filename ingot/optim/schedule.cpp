#include "ingot/optim/schedule.h"

#include <algorithm>

#include "ingot/core/error.h"

namespace ingot {
namespace {

// A length that is given in tokens, or in steps if `tokens` is 0, in the unit of a run by steps or tokens.
double in_unit(int64_t run_steps, int64_t tokens, RunUnit unit, const BatchRamp& ramp) {
  if (unit == RunUnit::kTokens)
    return static_cast<double>(tokens > 0 ? tokens : ramp.tokens_before(run_steps));
  return static_cast<double>(tokens > 0 ? ramp.steps_for(tokens) : run_steps);
}

// End of the warm-up in the unit of the run. In a run by time it is not known beforehand, so the phases
// then start at 0.
double warmup_end(const ScheduleConfig& config, RunUnit unit, const BatchRamp& ramp) {
  return unit == RunUnit::kTime ? 0 : in_unit(config.warmup_steps, config.warmup_tokens, unit, ramp);
}

// The position at which the phases end, in the unit of the run.
double decay_end(const ScheduleConfig& config, const RunLength& length, const BatchRamp& ramp) {
  if (config.decay_steps == 0 && config.decay_tokens == 0) return length.total;
  if (length.unit == RunUnit::kTime)
    fail(ErrorKind::kUsage,
         "schedule.{} needs a number of steps or tokens, and train.max_time is set; set it to 0",
         config.decay_tokens > 0 ? "decay_tokens" : "decay_steps");
  return in_unit(config.decay_steps, config.decay_tokens, length.unit, ramp);
}

// The cool-down phase of a wsd run.
Phase cooldown(const ScheduleConfig& config, RunUnit unit, const BatchRamp& ramp, double total) {
  Phase phase{.kind = Phase::Length::kPercent,
              .length = 100 * config.cooldown_frac,
              .curve = config.cooldown_curve,
              .to = config.floor};
  if (config.cooldown_steps == 0) return phase;
  if (unit == RunUnit::kTime)
    fail(ErrorKind::kUsage,
         "schedule.cooldown_steps needs a number of steps or tokens, and train.max_time is set; give "
         "schedule.cooldown_frac");
  phase.kind = Phase::Length::kCount;
  const auto full_step = static_cast<double>(ramp.step_tokens(static_cast<int64_t>(total)));
  phase.length = static_cast<double>(config.cooldown_steps) * (unit == RunUnit::kTokens ? full_step : 1.0);
  return phase;
}

std::vector<Phase> lr_phases(const ScheduleConfig& config, RunUnit unit, const BatchRamp& ramp,
                             double total) {
  const double warm = warmup_end(config, unit, ramp);
  const Phase warming{
      .kind = Phase::Length::kCount, .length = std::min(warm, total), .curve = Curve::kConstant, .to = 1};
  const auto rest = [&](Curve curve) {
    return Phase{.kind = Phase::Length::kRest, .length = 0, .curve = curve, .to = config.floor};
  };
  switch (config.kind) {
    case ScheduleKind::kConstant:
      return {};
    case ScheduleKind::kCosine:
      return {warming, rest(Curve::kCosine)};
    case ScheduleKind::kLinear:
      return {warming, rest(Curve::kLinear)};
    case ScheduleKind::kWsd:
      return {rest(Curve::kConstant), cooldown(config, unit, ramp, total)};
    case ScheduleKind::kPhases:
      return config.phases;
  }
  return {};
}

void check_count(const char* key, int64_t value) {
  if (value < 0) fail(ErrorKind::kUsage, "schedule.{} must not be negative, got {}", key, value);
}

void check_phases(const char* key, const std::vector<Phase>& phases, double highest) {
  for (const Phase& phase : phases) {
    if (phase.curve != Curve::kConstant && !(phase.to >= 0 && phase.to <= highest))
      fail(ErrorKind::kUsage, "schedule.{}: values must lie in [0, {}], got {}", key, highest, phase.to);
    if (phase.kind == Phase::Length::kPercent && !(phase.length > 0 && phase.length <= 100))
      fail(ErrorKind::kUsage, "schedule.{}: a part of the run must lie in (0 %, 100 %], got {} %", key,
           phase.length);
  }
}

}  // namespace

void ScheduleConfig::validate() const {
  check_count("warmup_steps", warmup_steps);
  check_count("warmup_tokens", warmup_tokens);
  check_count("decay_steps", decay_steps);
  check_count("decay_tokens", decay_tokens);
  check_count("cooldown_steps", cooldown_steps);
  if (warmup_steps > 0 && warmup_tokens > 0)
    fail(ErrorKind::kUsage,
         "schedule.warmup_tokens = {} and schedule.warmup_steps = {}: set one of them to 0", warmup_tokens,
         warmup_steps);
  if (decay_steps > 0 && decay_tokens > 0)
    fail(ErrorKind::kUsage, "schedule.decay_tokens = {} and schedule.decay_steps = {}: set one of them to 0",
         decay_tokens, decay_steps);
  if (!(floor >= 0 && floor <= 1))
    fail(ErrorKind::kUsage, "schedule.floor must lie in [0, 1], got {}", floor);
  if (!(cooldown_frac > 0 && cooldown_frac <= 1))
    fail(ErrorKind::kUsage, "schedule.cooldown_frac must lie in (0, 1], got {}", cooldown_frac);
  if (kind == ScheduleKind::kWsd && cooldown_curve == Curve::kExponential && floor <= 0)
    fail(ErrorKind::kUsage, "schedule.floor must be above 0 for an exponential cool-down, got {}", floor);
  if ((kind == ScheduleKind::kPhases) == phases.empty())
    fail(ErrorKind::kUsage, "schedule.phases and schedule.kind = \"phases\" belong together; {}",
         phases.empty() ? "give the phases" : "set the kind");
  if (!(phases_from >= 0 && phases_from <= 1))
    fail(ErrorKind::kUsage, "schedule.phases_from must lie in [0, 1], got {}", phases_from);
  if (!(momentum_from >= 0 && momentum_from < 1))
    fail(ErrorKind::kUsage, "schedule.momentum_from must lie in [0, 1), got {}", momentum_from);
  check_phases("phases", phases, 1);
  constexpr double kLargestMomentum = 0.99999, kLargestWindow = 1 << 24;
  check_phases("momentum", momentum, kLargestMomentum);
  check_phases("window", window, kLargestWindow);
  if (!(window_from >= 0 && window_from <= kLargestWindow))
    fail(ErrorKind::kUsage, "schedule.window_from must lie in [0, {}], got {}", kLargestWindow, window_from);
  if (window_multiple < 1)
    fail(ErrorKind::kUsage, "schedule.window_multiple must be at least 1, got {}", window_multiple);
}

Schedule::Schedule(const ScheduleConfig& config, const RunLength& length, const BatchRamp& ramp)
    : rule_(config.warmup_rule),
      warmup_steps_(config.warmup_steps),
      warmup_tokens_(config.warmup_tokens),
      unit_(length.unit),
      lr_("schedule.phases", 1, {}, 0),
      window_multiple_(config.window_multiple) {
  const double total = decay_end(config, length, ramp);
  const char* name = config.kind == ScheduleKind::kWsd ? "schedule.cooldown_steps" : "schedule.phases";
  const double first = config.kind == ScheduleKind::kPhases ? config.phases_from : 1;
  lr_ = PhasedCurve(name, first, lr_phases(config, unit_, ramp, total), total);
  if (!config.momentum.empty())
    momentum_.emplace("schedule.momentum", config.momentum_from, config.momentum, length.total);
  if (!config.window.empty())
    window_.emplace("schedule.window", config.window_from, config.window, length.total);
}

double Schedule::unit_position(const RunPosition& p) const {
  switch (unit_) {
    case RunUnit::kSteps:
      return static_cast<double>(p.step);
    case RunUnit::kTokens:
      return static_cast<double>(p.tokens);
    case RunUnit::kTime:
      return p.time_s;
  }
  return 0;
}

double Schedule::warmup(const RunPosition& p) const {
  const bool counts_tokens = warmup_tokens_ > 0;
  const auto done = static_cast<double>(counts_tokens ? p.tokens : p.step);
  const auto length = static_cast<double>(counts_tokens ? warmup_tokens_ : warmup_steps_);
  if (done >= length) return 1;
  const auto one = static_cast<double>(counts_tokens ? p.step_tokens : 1);
  switch (rule_) {
    case WarmupRule::kFromZero:
      return done / length;
    case WarmupRule::kFromOne:
      return std::min(1.0, (done + one) / length);
    case WarmupRule::kBetween:
      return (done + one) / (length + one);
  }
  return 1;
}

double Schedule::lr(const RunPosition& p) const { return std::min(warmup(p), lr_.at(unit_position(p))); }

std::optional<double> Schedule::momentum(const RunPosition& p) const {
  if (!momentum_) return std::nullopt;
  return momentum_->at(unit_position(p));
}

std::optional<int64_t> Schedule::window(const RunPosition& p) const {
  if (!window_) return std::nullopt;
  const double multiples = std::ceil(window_->at(unit_position(p)) / static_cast<double>(window_multiple_));
  return window_multiple_ * std::max<int64_t>(1, static_cast<int64_t>(multiples));
}

}  // namespace ingot
