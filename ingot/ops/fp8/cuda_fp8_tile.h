// Shared by the kernels that cast to FP8: the statistics of a cast, and the tile that is written in both
// layouts. For .cu files only.
#pragma once

#include "ingot/ops/cuda/cuda_kernel.h"
#include "ingot/ops/fp8/cuda_fp8.h"

namespace ingot::cuda::fp8 {

// Statistics of one thread. report() reduces them over the warp and adds them to the meter with integer
// atomics, whose result does not depend on their order.
struct Tally {
  float amax = 0;
  uint32_t saturated = 0, underflowed = 0;

  // Adds x to the statistics and returns it scaled.
  template <typename Format>
  __device__ __forceinline__ float take(float x, float scale) {
    const float magnitude = std::fabs(x), scaled = x * scale;
    amax = magnitude > amax ? magnitude : amax;
    saturated += Format::saturates(scaled) ? 1u : 0u;
    underflowed += Format::underflows(scaled) ? 1u : 0u;
    return scaled;
  }
};

struct Meter {
  uint32_t *amax, *counts;
};

// amax = max(amax, of_thread of all threads). Nonnegative floats have the same order as their bits.
__device__ __forceinline__ void raise(uint32_t* amax, float of_thread) {
  const float of_warp = warp_max(of_thread);
  if (threadIdx.x % kWarp == 0 && of_warp > 0) atomicMax(amax, std::bit_cast<uint32_t>(of_warp));
}

__device__ __forceinline__ uint32_t warp_total(uint32_t value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

__device__ __forceinline__ void report(const Meter& meter, const Tally& tally) {
  raise(meter.amax, tally.amax);
  const uint32_t saturated = warp_total(tally.saturated), underflowed = warp_total(tally.underflowed);
  if (threadIdx.x % kWarp != 0) return;
  if (saturated > 0) atomicAdd(meter.counts, saturated);
  if (underflowed > 0) atomicAdd(meter.counts + 1, underflowed);
}

// fp8_scale of ops/cast_fp8.h. The exponent bits of a double are the largest power of two that does not
// exceed it.
__device__ __forceinline__ float scale_of(float amax, double most, bool is_power_of_two) {
  const double exact = most / std::fmax(static_cast<double>(amax), 1e-12);
  const uint64_t floor = std::bit_cast<uint64_t>(exact) & 0x7ff0000000000000u;
  return static_cast<float>(is_power_of_two ? std::bit_cast<double>(floor) : exact);
}

inline Meter meter_of(const Fp8Meter& meter, const char* op) {
  check_tensor(meter.amax, DType::f32, {1}, op);
  check_tensor(meter.counts, DType::u32, {2}, op);
  return {float_bits(meter.amax), meter.counts.as<uint32_t>()};
}

template <typename F>
void with_format(DType format, const char* op, F&& f) {
  if (format == DType::f8e4m3) return f(f8e4m3());
  if (format == DType::f8e5m2) return f(f8e5m2());
  fail(ErrorKind::kInternal, "{}: the format must be f8e4m3 or f8e5m2, got {}", op, name(format));
}

inline constexpr int kTile = 64;      // rows and columns of a block's tile
inline constexpr int kTileWidth = 8;  // codes that a thread writes at once
static_assert(kTile * kTile / kTileWidth == 2 * kThreads);

// Encodes a block's 64 x 64 tile of a matrix (N, C). source(row, column, tally) returns 8 scaled
// elements of a row and counts them. The codes go directly to `to` (if not null), and through shared
// memory to the transposed copy; a thread writes 8 bytes at a time to either. Rows of the tile in shared
// memory are padded by 4 bytes, so that a column's elements lie in different banks. All threads of the
// block call it. REQUIRES: N and C multiples of 8.
template <typename Format, typename Source>
__device__ __forceinline__ void encode_tile(Format* to, Format* transposed, int64_t N, int64_t C,
                                            const Meter& meter, const Source& source) {
  __shared__ uint8_t tile[kTile][kTile + 4];
  const int64_t first_column = int64_t{blockIdx.y} * kTile, first_row = int64_t{blockIdx.x} * kTile;
  Tally tally;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int place = half * kThreads + static_cast<int>(threadIdx.x);
    const int row = place / (kTile / kTileWidth), column = place % (kTile / kTileWidth) * kTileWidth;
    if (first_row + row >= N || first_column + column >= C) continue;
    const Floats<kTileWidth> v = source(first_row + row, first_column + column, tally);
    Raw<uint8_t, kTileWidth> codes;
#pragma unroll
    for (int k = 0; k < kTileWidth; k += 2) {
      const uint16_t pair = pack_fp8<Format>(v.at[k], v.at[k + 1]);
      codes.at[k] = static_cast<uint8_t>(pair);
      codes.at[k + 1] = static_cast<uint8_t>(pair >> 8);
    }
    const int64_t at = (first_row + row) * C + first_column + column;
    if (to) *reinterpret_cast<Raw<uint8_t, kTileWidth>*>(to + at) = codes;
#pragma unroll
    for (int k = 0; k < kTileWidth; ++k) tile[row][column + k] = codes.at[k];
  }
  report(meter, tally);
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int place = half * kThreads + static_cast<int>(threadIdx.x);
    const int column = place / (kTile / kTileWidth), row = place % (kTile / kTileWidth) * kTileWidth;
    if (first_row + row >= N || first_column + column >= C) continue;
    Raw<uint8_t, kTileWidth> codes;
#pragma unroll
    for (int k = 0; k < kTileWidth; ++k) codes.at[k] = tile[row + k][column];
    *reinterpret_cast<Raw<uint8_t, kTileWidth>*>(transposed + (first_column + column) * N + first_row + row) =
        codes;
  }
}

// Rows are along x, because there may be more than the 65535 blocks of y.
inline dim3 tiles_of(int64_t N, int64_t C) { return {blocks_for(N, kTile), blocks_for(C, kTile)}; }

}  // namespace ingot::cuda::fp8
