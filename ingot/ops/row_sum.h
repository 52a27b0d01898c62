// RowSum sums a parameter gradient (C) over rows with several threads, in an order that depends only on the
// number of threads: each thread adds into its own row of scratch, and finish() adds these rows in turn.
#pragma once

#include <cstdint>

#include "ingot/core/tensor.h"

namespace ingot {

// Rows of scratch that a sum over rows needs on a CUDA device, which uses another fixed order
// (ops/cuda_rows.h). The value is two blocks for each of the 132 multiprocessors of a Hopper GPU,
// whatever the device.
inline constexpr int64_t kRowParts = 264;

// Returns the rows of scratch that a sum over rows needs: kRowParts on a CUDA device, num_threads() on the
// CPU.
int64_t row_sum_parts(Device device);

class RowSum {
 public:
  // total: (C) f32, or absent if no sum is wanted. scratch: at least (num_threads(), C) f32.
  RowSum(const Tensor& total, const Tensor& scratch);

  // Returns the zeroed partial sum (C) of a thread. Each thread calls it at most once.
  float* partial(int thread);
  // total += the partial sums. The caller calls it once, after the threads are done.
  void finish();

 private:
  static constexpr int kMaxThreads = 256;

  float* total_ = nullptr;
  float* scratch_ = nullptr;
  int64_t C_ = 0;
  bool used_[kMaxThreads] = {};
};

}  // namespace ingot
