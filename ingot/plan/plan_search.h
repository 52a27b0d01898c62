// Searches the layouts of a number of ranks for the fastest that fits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ingot/plan/plan.h"

namespace ingot {

struct FoundPlan {
  std::string settings;  // "parallel.tp=8 parallel.pp=4 ...", what differs from the given configuration
  double step_s = 0, tokens_per_s = 0, mfu = 0, exposed_comm_s = 0, bubble = 0;
  uint64_t peak_bytes = 0;
  std::string reason;  // what limits it
};

struct SearchResult {
  int64_t valid = 0, fitting = 0, simulated = 0;  // combinations
  std::vector<FoundPlan> best;                    // fastest first
};

// Tries every product of pipeline stages, replicas, shards and tensor-parallel ranks that makes `ranks`, with
// every policy of recomputation and every micro-batch that leaves the tokens of a step as they are. What
// the trainer refuses and what does not fit is left out; of the rest, the `simulate` combinations that
// would be fastest without communication are simulated. on_progress(done, of) may be null.
SearchResult search_plans(const RunConfig& config, const PlanTarget& target, int64_t ranks, size_t keep,
                          size_t simulate, const std::function<void(size_t done, size_t of)>& on_progress);

}  // namespace ingot
