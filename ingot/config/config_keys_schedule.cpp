#include "ingot/config/config_keys_schedule.h"

#include <array>
#include <charconv>
#include <sstream>
#include <string_view>

#include "ingot/config/config_key_kinds.h"

namespace ingot {
namespace {

using enum ResumeClass;

using key_kinds::choice;
using key_kinds::flag;
using key_kinds::kMany;
using key_kinds::number;
using key_kinds::refuse;
using key_kinds::whole;
using R = RunConfig;
using S = ScheduleConfig;

constexpr std::array<std::pair<std::string_view, Curve>, 5> kCurves = {{{"constant", Curve::kConstant},
                                                                        {"linear", Curve::kLinear},
                                                                        {"cosine", Curve::kCosine},
                                                                        {"exponential", Curve::kExponential},
                                                                        {"1-sqrt", Curve::kOneMinusSqrt}}};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Returns the texts of a list key; a single text is a list of one.
std::optional<std::vector<std::string>> texts_of(const ConfigValue& value) {
  if (const auto* s = std::get_if<std::string>(&value)) return std::vector{*s};
  if (const auto* v = std::get_if<std::vector<std::string>>(&value)) return *v;
  return std::nullopt;
}

std::optional<double> parse_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<Phase> parse_length(const std::string& word) {
  if (word == "rest") return Phase{.kind = Phase::Length::kRest};
  if (word.ends_with("%")) {
    const std::optional<double> percent = parse_number(word.substr(0, word.size() - 1));
    if (!percent) return std::nullopt;
    return Phase{.kind = Phase::Length::kPercent, .length = *percent};
  }
  const std::optional<int64_t> count = parse_count(word);
  if (!count) return std::nullopt;
  return Phase{.kind = Phase::Length::kCount, .length = static_cast<double>(*count)};
}

// Parses a phase such as "30% constant", "2000 linear to 0.1" or "rest cosine to 0".
std::optional<Phase> parse_phase(const std::string& text) {
  const std::vector<std::string> words = words_of(text);
  if (words.size() != 2 && words.size() != 4) return std::nullopt;
  std::optional<Phase> phase = parse_length(words[0]);
  if (!phase) return std::nullopt;
  const auto curve =
      std::find_if(kCurves.begin(), kCurves.end(), [&](const auto& c) { return c.first == words[1]; });
  if (curve == kCurves.end()) return std::nullopt;
  phase->curve = curve->second;
  if ((words.size() == 2) != (phase->curve == Curve::kConstant)) return std::nullopt;
  if (words.size() == 2) return phase;
  const std::optional<double> to = parse_number(words[3]);
  if (words[2] != "to" || !to) return std::nullopt;
  phase->to = *to;
  return phase;
}

std::string phase_text(const Phase& phase) {
  std::string text = phase.kind == Phase::Length::kRest      ? std::string("rest")
                     : phase.kind == Phase::Length::kPercent ? fmt::format("{}%", phase.length)
                                                             : fmt::format("{:.0f}", phase.length);
  for (const auto& [name, curve] : kCurves)
    if (curve == phase.curve) text += fmt::format(" {}", name);
  if (phase.curve != Curve::kConstant) text += fmt::format(" to {}", phase.to);
  return text;
}

// Parses a stage such as "2 until 16M".
std::optional<BatchStage> parse_stage(const std::string& text) {
  const std::vector<std::string> words = words_of(text);
  if (words.size() != 3 || words[1] != "until") return std::nullopt;
  const std::optional<int64_t> micros = parse_count(words[0]), tokens = parse_count(words[2]);
  if (!micros || !tokens || *micros < 1 || *tokens < 1) return std::nullopt;
  return BatchStage{.micro_batches = *micros, .until_tokens = *tokens};
}

std::string stage_text(const BatchStage& stage) {
  return fmt::format("{} until {}", stage.micro_batches, stage.until_tokens);
}

// A key for a list of items, each written as a text.
template <typename Item, typename... Path>
ConfigKey items(std::string name, ResumeClass resume, std::string rule, std::string doc,
                std::optional<Item> (*parse)(const std::string&), std::string (*write)(const Item&),
                Path... path) {
  return {name,
          resume,
          rule,
          std::move(doc),
          true,
          [=](RunConfig& config, const ConfigValue& value) {
            const auto texts = texts_of(value);
            if (!texts) refuse(name, rule, value);
            std::vector<Item> list;
            for (const std::string& text : *texts) {
              const std::optional<Item> item = parse(text);
              if (!item) refuse(name, rule, ConfigValue(text));
              list.push_back(*item);
            }
            key_kinds::member(config, path...) = std::move(list);
          },
          [=](const RunConfig& config) {
            std::string list;
            for (const Item& item : key_kinds::member(config, path...))
              list += (list.empty() ? "" : ", ") + toml_string(write(item));
            return "[" + list + "]";
          }};
}

ConfigKey phases(std::string name, std::string doc, std::vector<Phase> S::*list) {
  return items<Phase>(std::move(name), kCourse,
                      "phases such as \"30% constant\", \"2000 linear to 0.1\" or \"rest ...\"",
                      std::move(doc), parse_phase, phase_text, &R::schedule, list);
}

std::vector<std::pair<std::string, Curve>> cooldown_curves() {
  std::vector<std::pair<std::string, Curve>> curves;
  for (const auto& [name, curve] : kCurves)
    if (curve != Curve::kConstant) curves.emplace_back(name, curve);
  return curves;
}

void add_window_keys(std::vector<ConfigKey>& keys) {
  keys.push_back(number("schedule.window_from", kCourse, "first value of schedule.window", &R::schedule,
                        &S::window_from));
  keys.push_back(
      phases("schedule.window",
             "phases of attention's window in tokens, such as \"rest linear to 1728\"; empty: model.window",
             &S::window));
  keys.push_back(whole("schedule.window_multiple", kCourse, 1, 1 << 20,
                       "schedule.window is rounded up to a multiple of this", &R::schedule,
                       &S::window_multiple));
}

void add_momentum_keys(std::vector<ConfigKey>& keys) {
  keys.push_back(number("schedule.momentum_from", kCourse, "first value of schedule.momentum", &R::schedule,
                        &S::momentum_from));
  keys.push_back(phases("schedule.momentum",
                        "phases of the momentum, such as \"300 linear to 0.95\"; empty: constant",
                        &S::momentum));
}

}  // namespace

void add_batch_ramp_key(std::vector<ConfigKey>& keys) {
  keys.push_back(
      items<BatchStage>("train.batch_ramp", kText, "stages such as \"2 until 16M\"",
                        "batch ramp: micro-batches per step until a number of tokens, then train.grad_accum",
                        parse_stage, stage_text, &R::train, &TrainConfig::batch_ramp));
}

void add_schedule_keys(std::vector<ConfigKey>& keys) {
  const auto schedule = &R::schedule;
  keys.push_back(choice<ScheduleKind>("schedule.kind", kCourse,
                                      {{"constant", ScheduleKind::kConstant},
                                       {"cosine", ScheduleKind::kCosine},
                                       {"linear", ScheduleKind::kLinear},
                                       {"wsd", ScheduleKind::kWsd},
                                       {"phases", ScheduleKind::kPhases}},
                                      "shape of the learning rate after warm-up", schedule, &S::kind));
  keys.push_back(whole("schedule.warmup_steps", kCourse, 0, kMany, "steps of linear warm-up", schedule,
                       &S::warmup_steps));
  keys.push_back(whole("schedule.warmup_tokens", kCourse, 0, kMany,
                       "tokens of linear warm-up, instead of steps", schedule, &S::warmup_tokens));
  keys.push_back(choice<WarmupRule>("schedule.warmup_rule", kCourse,
                                    {{"s/w", WarmupRule::kFromZero},
                                     {"(s+1)/w", WarmupRule::kFromOne},
                                     {"(s+1)/(w+1)", WarmupRule::kBetween}},
                                    "fraction of the peak at step s of a warm-up of w steps", schedule,
                                    &S::warmup_rule));
  keys.push_back(
      number("schedule.floor", kCourse, "last learning rate as a fraction of the peak", schedule, &S::floor));
  keys.push_back(whole("schedule.decay_steps", kCourse, 0, kMany,
                       "step at which the floor is reached; 0: the end of the run", schedule,
                       &S::decay_steps));
  keys.push_back(whole("schedule.decay_tokens", kCourse, 0, kMany, "the same in tokens, instead of steps",
                       schedule, &S::decay_tokens));
  keys.push_back(number("schedule.cooldown_frac", kCourse,
                        "wsd: last part of the run, in which the rate falls", schedule, &S::cooldown_frac));
  keys.push_back(whole("schedule.cooldown_steps", kCourse, 0, kMany, "the same in steps; 0: by cooldown_frac",
                       schedule, &S::cooldown_steps));
  keys.push_back(choice<Curve>("schedule.cooldown_curve", kCourse, cooldown_curves(), "wsd: how it falls",
                               schedule, &S::cooldown_curve));
  keys.push_back(
      number("schedule.phases_from", kCourse, "first value of schedule.phases", schedule, &S::phases_from));
  keys.push_back(phases("schedule.phases",
                        "kind phases: length, curve and last multiplier of each; lengths in %, or in the "
                        "unit of the run (steps, tokens, seconds)",
                        &S::phases));
  add_momentum_keys(keys);
  add_window_keys(keys);
}

void add_guard_keys(std::vector<ConfigKey>& keys) {
  using G = GuardConfig;
  const auto guard = &R::guard;
  keys.push_back(choice<GuardPolicy>(
      "guard.non_finite", kCourse,
      {{"stop", GuardPolicy::kStop}, {"skip", GuardPolicy::kSkip}, {"rollback", GuardPolicy::kRollback}},
      "when a loss or gradient is not finite; rollback: to the newest checkpoint, and past the batch", guard,
      &G::non_finite));
  keys.push_back(choice<GuardPolicy>("guard.spike", kCourse,
                                     {{"report", GuardPolicy::kReport},
                                      {"skip", GuardPolicy::kSkip},
                                      {"rollback", GuardPolicy::kRollback},
                                      {"stop", GuardPolicy::kStop}},
                                     "when a loss lies far above those before it", guard, &G::spike));
  keys.push_back(whole("guard.max_skips", kCourse, 0, kMany, "batches skipped in a row, then the run stops",
                       guard, &G::max_skips));
  keys.push_back(whole("guard.spike_window", kCourse, 8, 1 << 20,
                       "losses that a new one is compared with; gradient norms of guard.norm_rise", guard,
                       &G::spike_window));
  keys.push_back(number("guard.spike_threshold", kCourse,
                        "a spike lies this many robust deviations above the median", guard,
                        &G::spike_threshold));
  keys.push_back(
      number("guard.norm_rise", kFree,
             "warn if the median gradient norm of the newer half of spike_window is this many times that of "
             "the older half; 0: never",
             guard, &G::norm_rise));
  keys.push_back(
      whole("guard.replica_hash_every", kFree, 0, kMany,
            "steps between comparisons of what replicas hold in memory; a flipped bit rolls the run "
            "back; 0: never",
            guard, &G::replica_hash_every));
  keys.push_back(flag("guard.memory_watch", kFree,
                      "hash weights and optimizer state after every update and again before the next one",
                      guard, &G::watches_memory));
  keys.push_back(
      whole("guard.verify_every", kFree, 0, kMany,
            "steps between gradients that are computed twice and must have the same bits; 0: never", guard,
            &G::verify_every));
}

}  // namespace ingot
