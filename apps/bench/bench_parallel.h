// ingot bench parallel: the communication between ranks, and how much of it is overlapped with computation.
#pragma once

#include <cstdint>
#include <string>

#include "ingot/config/config.h"

namespace ingot {

struct ParallelBenchOptions {
  int64_t steps = 5;
  std::string trace;     // file for a Chrome trace of all ranks; empty: none
  bool is_json = false;  // prints the times and order of all ranks' operations instead (bench_operations.h)
};

// Runs on all ranks that mpirun started, in the configuration's layout, on random tokens. Rank 0 prints the
// figures of the rank that hides the least.
void bench_parallel(const RunConfig& config, const ParallelBenchOptions& options);

}  // namespace ingot
