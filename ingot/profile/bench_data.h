// What the benchmarks of whole steps share: a configuration that runs without data, random tokens, medians.
#pragma once

#include <chrono>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/data/token_source.h"

namespace ingot::bench {

using Clock = std::chrono::steady_clock;
double milliseconds_since(Clock::time_point start);
double median(std::vector<double> values);  // 0 of none; the upper one of an even number

// Threads set, and a vocabulary where the config leaves it to a tokenizer.
RunConfig runnable(RunConfig config);
// kUsage error for a config of several ranks.
void require_one_rank(const RunConfig& config);

// Enough for a few batches. REQUIRES: the config's vocab is set.
TokenSource random_tokens(const RunConfig& config);

}  // namespace ingot::bench
