// A simulation runs the seed of a scenario from its start to its end in a process of its own and says whether
// every invariant held.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/simulated_ranks/planted_bugs.h"
#include "tests/simulated_ranks/scenario.h"

namespace ingot::simulated {

// Outcome describes how a seed ended.
struct Outcome {
  std::string kind;  // the invariant that does not hold; empty if all do
  std::string text;
  std::string scenario;
  uint64_t trace = 0;    // hash of all scheduling decisions, operations and file calls
  double virtual_s = 0;  // how long the run took in virtual time
  int attempts = 0;      // how often the job was started
  int fired = 0;         // faults that happened
  bool is_good() const { return kind.empty(); }
};

// Runs the seed in a child process. A layout's undisturbed run is made once per process.
Outcome run_seed(uint64_t seed, Bug bug = Bug::kNone);

}  // namespace ingot::simulated
