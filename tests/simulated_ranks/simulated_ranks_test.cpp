// Runs seeds of the simulation (docs/simulated-ranks.md). INGOT_SEED=N runs the seed N only and says what
// happened; INGOT_FIRST_SEED=N and INGOT_SEEDS=N set which seeds a test runs, INGOT_BUG=name plants a bug.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/simulated_ranks/simulation.h"

namespace ingot::simulated {
namespace {

int number_of(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

Bug bug_of(const char* variable) {
  const char* text = std::getenv(variable);
  for (const BugText& bug : kBugs)
    if (text && bug.name == text) return bug.bug;
  return Bug::kNone;
}

void print(const Outcome& outcome) {
  fmt::print("{}\n  {} attempts, {} faults, {:.1f} s of virtual time, trace {:016x}\n  {}\n{}\n",
             outcome.scenario, outcome.attempts, outcome.fired, outcome.virtual_s, outcome.trace,
             outcome.is_good() ? "every invariant holds" : outcome.kind, outcome.text);
}

void expect_good(uint64_t first, int count) {
  int attempts = 0, fired = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count); ++seed) {
    const Outcome outcome = run_seed(seed);
    attempts += outcome.attempts;
    fired += outcome.fired;
    EXPECT_TRUE(outcome.is_good()) << outcome.scenario << "\n"
                                   << outcome.kind << ": " << outcome.text << "\nreplay: INGOT_SEED=" << seed;
  }
  fmt::print("{} seeds: {} attempts, {} faults\n", count, attempts, fired);
}

TEST(SimulatedRanks, EveryInvariantHolds) {
  if (const int seed = number_of("INGOT_SEED", -1); seed >= 0) {
    const Outcome outcome = run_seed(static_cast<uint64_t>(seed), bug_of("INGOT_BUG"));
    print(outcome);
    EXPECT_TRUE(outcome.is_good());
    return;
  }
  expect_good(static_cast<uint64_t>(number_of("INGOT_FIRST_SEED", 0)), number_of("INGOT_SEEDS", 30));
}

TEST(SimulatedRanks, ASeedReplaysExactly) {
  for (const uint64_t seed : {2, 17, 40}) EXPECT_EQ(run_seed(seed).trace, run_seed(seed).trace) << seed;
}

TEST(ChaosSimulatedRanks, EveryInvariantHolds) {
  expect_good(static_cast<uint64_t>(number_of("INGOT_FIRST_SEED", 0)), number_of("INGOT_SEEDS", 1000));
}

// Each planted bug breaks an invariant within 500 seeds; without it, the same seed breaks none.
TEST(LongSimulatedRanks, PlantedBugsAreFound) {
  const auto most = static_cast<uint64_t>(number_of("INGOT_SEEDS", 500));
  for (const BugText& bug : kBugs) {
    uint64_t seed = 0;
    Outcome outcome = run_seed(seed, bug.bug);
    while (outcome.is_good() && ++seed < most) outcome = run_seed(seed, bug.bug);
    EXPECT_FALSE(outcome.is_good()) << bug.name << " is not found: " << bug.what;
    EXPECT_TRUE(run_seed(seed).is_good()) << seed;
    fmt::print("| {} | {} | {} |\n", bug.what, seed + 1, outcome.kind);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace ingot::simulated
