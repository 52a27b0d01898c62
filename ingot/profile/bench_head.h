// Compares the kinds of loss head: time and working memory.
#pragma once

#include <cstdint>
#include <vector>

#include "ingot/nn/loss_head.h"

namespace ingot {

struct HeadBenchOptions {
  int64_t tokens = 8192, vocab = 50304, width = 768;
  HeadPrecision precision = HeadPrecision::kBf16;  // kF32 (f32 operands), kBf16 or kFp8 (bf16 operands)
  int64_t repetitions = 5;
  Device device = Device::kCpu;
};

struct HeadBenchRow {
  const char* kind = "";  // "dense", "chunked", "recompute"
  size_t scratch_bytes = 0;
  double ms = 0;    // median of the repetitions; each is loss and gradients of one micro-batch
  double loss = 0;  // mean, nats
};

// Returns the dense head first. Throws a kUsage error if the device is missing or has no such head.
std::vector<HeadBenchRow> bench_head(const HeadBenchOptions& options);

}  // namespace ingot
