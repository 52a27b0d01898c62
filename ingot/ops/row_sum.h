// RowSum: a parameter gradient (C) summed over rows by several threads, in an order that depends only on the
// number of threads: each thread adds into its own row of scratch, finish() adds the rows in turn.
#pragma once

#include <cstdint>

#include "ingot/core/tensor.h"

namespace ingot {

// Rows of scratch that such a sum takes on a CUDA device, which sums in another fixed order
// (ops/cuda/cuda_rows.h): two blocks for each of the 132 multiprocessors of a Hopper GPU, whatever the device.
inline constexpr int64_t kRowParts = 264;

// Rows of scratch that a sum over rows takes on the device: num_threads() on the CPU.
int64_t row_sum_parts(Device device);

class RowSum {
 public:
  // total: (C) f32, or absent (then nothing is summed). scratch: at least (num_threads(), C) f32.
  RowSum(const Tensor& total, const Tensor& scratch);

  // The zeroed partial sum (C) of one thread; call it once, from that thread.
  float* partial(int thread);
  // total += partials. Call once, after the threads are done.
  void finish();

 private:
  static constexpr int kMaxThreads = 256;

  float* total_ = nullptr;
  float* scratch_ = nullptr;
  int64_t C_ = 0;
  bool used_[kMaxThreads] = {};
};

}  // namespace ingot
