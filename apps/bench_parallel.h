// ingot bench parallel: what ranks tell each other, and how much of it is hidden behind computing.
#pragma once

#include <cstdint>
#include <string>

#include "ingot/config/config.h"

namespace ingot {

struct ParallelBenchOptions {
  int64_t steps = 5;
  std::string trace;  // a file for a Chrome trace of all ranks; empty: none
};

// By all ranks that mpirun started, in the configuration's layout, on random tokens. Rank 0 prints the
// figures of the rank that hides least.
void bench_parallel(const RunConfig& config, const ParallelBenchOptions& options);

}  // namespace ingot
