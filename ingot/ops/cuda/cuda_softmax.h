// The softmax of a row of logits, merged from the partial results of its threads. For .cu files only.
#pragma once

#include <limits>

#include "ingot/core/cuda/cuda_kernel.h"

namespace ingot::cuda::softmax {

using Math = ThreadMath<float>;

inline constexpr float kLowest = std::numeric_limits<float>::lowest();

// The softmax over some columns of a row: the largest logit before (x_max) and after the cap (z_max),
// its lowest column, the sum of exp(z - z_max), and the sum of z.
struct PartialSoftmax {
  float x_max, z_max, total, z_sum;
  int top;

  static __device__ __forceinline__ PartialSoftmax none() {
    return {kLowest, kLowest, 0, 0, std::numeric_limits<int>::max()};
  }
  template <typename Cap>
  __device__ __forceinline__ void add(float x, int column, const Cap& cap, bool is_smoothed) {
    const float z = cap(x).z;
    if (x > x_max) {
      total *= Math::exp(z_max - z);
      x_max = x;
      z_max = z;
      top = column;
    }
    total += Math::exp(z - z_max);
    if (is_smoothed) z_sum += z;
  }
  __device__ __forceinline__ void merge(const PartialSoftmax& other) {
    const float z = other.z_max > z_max ? other.z_max : z_max;
    total = total * Math::exp(z_max - z) + other.total * Math::exp(other.z_max - z);
    z_sum += other.z_sum;
    if (other.x_max > x_max || (other.x_max == x_max && other.top < top)) top = other.top;
    x_max = other.x_max > x_max ? other.x_max : x_max;
    z_max = z;
  }
  __device__ __forceinline__ PartialSoftmax from_lane(int mask) const {
    return {__shfl_xor_sync(0xffffffffu, x_max, mask), __shfl_xor_sync(0xffffffffu, z_max, mask),
            __shfl_xor_sync(0xffffffffu, total, mask), __shfl_xor_sync(0xffffffffu, z_sum, mask),
            __shfl_xor_sync(0xffffffffu, top, mask)};
  }
};

// Merges the parts of all threads in pairs. Every thread returns thread 0's result.
template <int kCount>
__device__ __forceinline__ PartialSoftmax merge_block(PartialSoftmax part) {
  __shared__ PartialSoftmax of_warp[kCount / kWarp];
  for (int mask = 1; mask < kWarp; mask *= 2) part.merge(part.from_lane(mask));
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = part;
  __syncthreads();
  part = of_warp[threadIdx.x % (kCount / kWarp)];
  for (int mask = 1; mask < kCount / kWarp; mask *= 2) part.merge(part.from_lane(mask));
  __syncthreads();
  if (threadIdx.x == 0) of_warp[0] = part;
  __syncthreads();
  return of_warp[0];
}

}  // namespace ingot::cuda::softmax
