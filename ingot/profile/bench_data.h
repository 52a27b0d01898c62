// Shared by the benchmarks of whole steps: a configuration that runs without data, and random tokens.
#pragma once

#include <chrono>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/data/token_source.h"

namespace ingot::bench {

using Clock = std::chrono::steady_clock;
double milliseconds_since(Clock::time_point start);

// Sets the number of threads, and returns the config with a vocabulary size if it leaves that to a
// tokenizer.
RunConfig runnable(RunConfig config);
// Throws a kUsage error for a config of several ranks.
void require_one_rank(const RunConfig& config);

// Returns the dense peak, in GFLOP/s, of products of `compute` that the device's data sheet states, by the
// device's name as its driver reports it ("NVIDIA H200"); 0 for a device that configs/hardware does not
// describe.
double data_sheet_gflops(std::string_view device, DType compute);

// Returns enough tokens for a few batches. REQUIRES: the config's vocab is set.
TokenSource random_tokens(const RunConfig& config);

}  // namespace ingot::bench
