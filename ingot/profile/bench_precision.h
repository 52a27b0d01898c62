// Trains one small model in every precision and compares validation loss, gradient error, values lost by
// casts, and bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ingot/config/config.h"

namespace ingot {

struct PrecisionBenchOptions {
  std::vector<std::string> data = {"builtin:cpp-headers"};
  int64_t steps = 200;
  int64_t seeds = 3;
};

struct PrecisionBenchRow {
  std::string recipe;          // "bf16 + fp8 head"
  std::vector<double> losses;  // validation loss at the end, one per seed
  double gradient_error = 0;   // |g - g_f64| / |g_f64| at the f32 run's final weights, same batch
  double saturated = 0;        // fraction of the values cast to FP8, in the last step of the first seed
  double underflowed = 0;      // the same for values that became 0
  uint64_t bytes = 0;          // bytes of all arenas
  double step_ms = 0;          // median of the first seed's steps
};

// Returns one row per recipe, and calls `report` after each. profile/llama_f64.h computes the reference
// gradients.
std::vector<PrecisionBenchRow> bench_precision(const PrecisionBenchOptions& options,
                                               const std::function<void(const PrecisionBenchRow&)>& report);

}  // namespace ingot
