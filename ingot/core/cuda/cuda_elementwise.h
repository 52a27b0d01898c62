// Elementwise kernels: a thread calls f(i), which processes the W elements from i on. For .cu files only.
#pragma once

#include "ingot/core/cuda/cuda_kernel.h"

namespace ingot::cuda {

template <int W, typename F>
__global__ void __launch_bounds__(kThreads) elementwise(int64_t n, F f) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W;
  if (i < n) f(i);
}

// The same for an f that returns the largest magnitude that it has written; amax is raised to that of all
// threads.
template <int W, typename F>
__global__ void __launch_bounds__(kThreads) elementwise_with_amax(int64_t n, F f, uint32_t* amax) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W;
  raise<kThreads>(amax, i < n ? f(i) : 0.0f);
}

// REQUIRES: n is a multiple of W.
template <int W, typename F>
void launch_elementwise(int64_t n, const char* op, Stream& stream, const F& f) {
  launch({stream, op, dim3(blocks_for(n, int64_t{kThreads} * W)), dim3(kThreads)}, elementwise<W, F>, n, f);
}

// As launch_elementwise, for an f that writes y and returns the largest magnitude that it has written; raises
// y.amax.
template <int W, typename F>
void launch_elementwise(int64_t n, const Tensor& y, const char* op, Stream& stream, const F& f) {
  if (!y.amax) return launch_elementwise<W>(n, op, stream, f);
  launch({stream, op, dim3(blocks_for(n, int64_t{kThreads} * W)), dim3(kThreads)},
         elementwise_with_amax<W, F>, n, f, amax_bits(y));
}

// Row and column of element i of (N, C), computed in 32 bits, where a division takes a tenth of the time.
struct RowColumn {
  uint32_t row, column;
  __device__ __forceinline__ RowColumn(int64_t i, uint32_t C)
      : row(static_cast<uint32_t>(i) / C), column(static_cast<uint32_t>(i) - row * C) {}
};

inline uint32_t row_length(int64_t N, int64_t C, const char* op) {
  INGOT_CHECK(N * C < (int64_t{1} << 32), "{}: at most 2^32 elements on a CUDA device, got {} x {}", op, N,
              C);
  return static_cast<uint32_t>(C);
}

}  // namespace ingot::cuda
