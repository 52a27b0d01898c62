#include "tests/simulated_ranks/scenario.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "tests/simulated_ranks/scheduler.h"

namespace ingot::simulated {
namespace {

struct Degrees {
  int64_t dp = 1, fsdp = 1, tp = 1, pp = 1;
};
constexpr std::array kLayouts = {
    Degrees{.dp = 8},
    Degrees{.fsdp = 8},
    Degrees{.dp = 4, .fsdp = 2},
    Degrees{.dp = 2, .fsdp = 4},
    Degrees{.dp = 4, .tp = 2},
    Degrees{.fsdp = 4, .tp = 2},
    Degrees{.dp = 4, .pp = 2},
    Degrees{.fsdp = 2, .tp = 2, .pp = 2},
    Degrees{.dp = 2, .fsdp = 2, .pp = 2},
    Degrees{.dp = 4, .fsdp = 4},
    Degrees{.dp = 2, .fsdp = 2, .tp = 2, .pp = 2},
    Degrees{.dp = 4, .fsdp = 4, .tp = 2, .pp = 2},
};
constexpr int kOf8Ranks = 9, kOf16Ranks = 2;

// draw() draws from this list, so a kind that it has several times is drawn more often.
constexpr std::array kFaults = {
    Fault::Kind::kKill,           Fault::Kind::kKill,          Fault::Kind::kKill,
    Fault::Kind::kKill,           Fault::Kind::kCrash,         Fault::Kind::kHostLost,
    Fault::Kind::kHostLost,       Fault::Kind::kStop,          Fault::Kind::kStop,
    Fault::Kind::kStraggle,       Fault::Kind::kFullDisk,      Fault::Kind::kFullDisk,
    Fault::Kind::kWriteError,     Fault::Kind::kPowerCut,      Fault::Kind::kPowerCut,
    Fault::Kind::kPowerCut,       Fault::Kind::kInterrupt,     Fault::Kind::kInterrupt,
    Fault::Kind::kSupervisorKill, Fault::Kind::kKillAndDamage,
};

Fault draw(Random& random, int attempt, int ranks, const Undisturbed& undisturbed) {
  Fault fault;
  fault.kind = kFaults[static_cast<size_t>(random.below(std::ssize(kFaults)))];
  fault.attempt = attempt;
  fault.rank = random.chance(0.3) ? 0 : static_cast<int>(random.below(ranks));
  const auto rank = static_cast<size_t>(fault.rank);
  // Half of the faults happen while a checkpoint is saved.
  const std::vector<int64_t>& saves = undisturbed.save_calls[rank];
  if (!saves.empty() && random.chance(0.5))
    fault.operation = saves[static_cast<size_t>(random.below(std::ssize(saves)))] + random.below(4);
  else
    fault.operation = 1 + random.below(undisturbed.operations[rank]);
  // A later attempt has fewer steps left.
  if (attempt > 0 && random.chance(0.7)) fault.operation = 1 + fault.operation / 3;
  fault.seconds = random.between(0.05, 3);
  if (fault.kind == Fault::Kind::kFullDisk && random.chance(0.3)) fault.seconds *= 5;
  fault.attempts = 1 + static_cast<int>(random.below(2));
  return fault;
}

}  // namespace

const char* name(Fault::Kind kind) {
  constexpr std::array kNames = {
      "kill",      "crash",     "host lost",         "stop",           "straggle", "full disk", "write error",
      "power cut", "interrupt", "supervisor killed", "kill and damage"};
  return kNames[static_cast<size_t>(kind)];
}

std::string Scenario::text() const {
  std::string text = fmt::format("seed {}: {}{}{}", seed, config.parallel.to_string(),
                                 has_watchdog ? "" : ", no watchdog", sees_processes ? "" : ", remote");
  for (const Fault& f : faults)
    text += fmt::format("; {} by rank {} at operation {} of attempt {} ({:.2g} s)", name(f.kind), f.rank,
                        f.operation, f.attempt, f.seconds);
  return text;
}

int layouts() { return static_cast<int>(kLayouts.size()); }

int layout_of(uint64_t seed) {
  Random random(seed);
  const double place = random.uniform();
  if (place < 0.01) return layouts() - 1;
  if (place < 0.05) return kOf8Ranks + static_cast<int>(random.below(kOf16Ranks));
  return static_cast<int>(random.below(kOf8Ranks));
}

RunConfig config_of(int layout, const std::filesystem::path& text) {
  const Degrees& degrees = kLayouts[static_cast<size_t>(layout)];
  RunConfig config;
  config.model = {.layers = 2, .heads = 4, .kv_heads = 2, .width = 16, .context = 8, .dropout = 0.1};
  config.data.train = {text.string()};
  config.data.tokenizer = "byte";
  config.train.steps = 8 + layout % 3;
  config.train.batch_size = 8;
  config.train.grad_accum = 2;
  config.train.threads = 1;
  config.train.stats_every = 0;
  config.schedule.warmup_steps = 2;
  config.optimizer.ema = layout % 4 == 1 ? 0.9 : 0.0;
  config.eval.every = 4;
  config.eval.max_tokens = 64;
  config.checkpoint.every = 2 + layout % 2;
  config.sample.count = 0;
  config.parallel.dp = degrees.dp;
  config.parallel.fsdp = degrees.fsdp;
  config.parallel.tp = degrees.tp;
  config.parallel.pp = degrees.pp;
  return config;
}

Scenario scenario_of(uint64_t seed, const std::filesystem::path& text, const Undisturbed& undisturbed) {
  Random random(seed ^ 0x5eed5eed5eed5eed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.layout = layout_of(seed);
  scenario.config = config_of(scenario.layout, text);
  scenario.has_watchdog = random.chance(0.5);
  scenario.sees_processes = random.chance(0.7);
  const auto ranks = static_cast<int>(scenario.config.parallel.ranks());
  const auto count = 1 + random.below(3);
  int attempt = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0 && random.chance(0.75)) ++attempt;
    scenario.faults.push_back(draw(random, attempt, ranks, undisturbed));
  }
  return scenario;
}

}  // namespace ingot::simulated
