// Times and sizes the loss head in each of its kinds, side by side in one run.
#pragma once

#include <cstdint>
#include <string>

namespace ingot {

struct HeadBenchOptions {
  int64_t tokens = 8192, vocab = 50304, width = 768;
  std::string precision = "bf16";  // f32, bf16 or fp8
  int64_t repetitions = 5;
  bool is_json = false;
};

// Prints a table, or one JSON object {tokens, vocab, width, precision, threads, rows: [{kind, scratch_bytes,
// scratch_ratio, ms, time_ratio, loss}]}; ratios are to the dense head. Losses and gradients, one
// micro-batch.
void bench_head(const HeadBenchOptions& options);

}  // namespace ingot
