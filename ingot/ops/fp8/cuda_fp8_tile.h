// Shared by the kernels that cast to FP8: the statistics of a cast, and the tile that is written in both
// layouts. For .cu files only.
#pragma once

#include "ingot/core/cuda/cuda_kernel.h"
#include "ingot/ops/cuda_fp8.h"

namespace ingot::cuda::fp8 {

// Statistics of one thread. report() reduces them over the block and adds them to the meter with integer
// atomics, whose result does not depend on their order.
struct Tally {
  float amax = 0;
  uint32_t saturated = 0, underflowed = 0;

  // Adds the values to the statistics and multiplies them by the scale. The product with a positive scale is
  // monotonic, so the largest and the smallest magnitude tell whether there is a value to count at all. A
  // zero makes the thread look closer, too.
  template <typename Format, int W>
  __device__ __forceinline__ void take(Floats<W>& v, float scale) {
    float most = 0, least = std::fabs(v.at[0]);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      most = std::fmax(most, std::fabs(v.at[k]));
      least = std::fmin(least, std::fabs(v.at[k]));
      v.at[k] *= scale;
    }
    amax = std::fmax(amax, most);
    if (most * scale > Format::kRoundsToMax || least * scale <= Format::kRoundsToZero) count<Format>(v);
  }
  // Does the same with one scale per value.
  template <typename Format, int W>
  __device__ __forceinline__ void take(Floats<W>& v, const Floats<W>& scale) {
    float most = 0, least = std::fabs(v.at[0] * scale.at[0]);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      amax = std::fmax(amax, std::fabs(v.at[k]));
      v.at[k] *= scale.at[k];
      most = std::fmax(most, std::fabs(v.at[k]));
      least = std::fmin(least, std::fabs(v.at[k]));
    }
    if (most > Format::kRoundsToMax || least <= Format::kRoundsToZero) count<Format>(v);
  }

 private:
  template <typename Format, int W>
  __device__ __forceinline__ void count(const Floats<W>& scaled) {
#pragma unroll
    for (int k = 0; k < W; ++k) {
      saturated += Format::saturates(scaled.at[k]) ? 1u : 0u;
      underflowed += Format::underflows(scaled.at[k]) ? 1u : 0u;
    }
  }
};

struct Meter {
  uint32_t *amax, *counts;
};

__device__ __forceinline__ uint32_t warp_total(uint32_t value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

// Statistics of a block's warps, in shared memory.
template <int kBlock>
struct WarpTallies {
  static constexpr int kWarps = kBlock / kWarp;
  uint32_t amax[kWarps], saturated[kWarps], underflowed[kWarps];

  // Puts the statistics of the caller's warp. All threads of the block call it, and then a barrier.
  __device__ __forceinline__ void put(const Tally& tally) {
    const float most = warp_max(tally.amax);
    uint32_t above = 0, below = 0;
    if (__ballot_sync(0xffffffffu, (tally.saturated | tally.underflowed) != 0) != 0) {
      above = warp_total(tally.saturated);
      below = warp_total(tally.underflowed);
    }
    if (threadIdx.x % kWarp != 0) return;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    amax[warp] = std::bit_cast<uint32_t>(most);
    saturated[warp] = above;
    underflowed[warp] = below;
  }
  // Adds the statistics of the block to the meter. Three threads work, and each makes at most one atomic.
  // Nonnegative floats have the same order as their bits.
  __device__ __forceinline__ void add_to(const Meter& meter) const {
    if (threadIdx.x > 2) return;
    const uint32_t* of_warps = threadIdx.x == 0 ? amax : threadIdx.x == 1 ? saturated : underflowed;
    uint32_t most = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      most = of_warps[i] > most ? of_warps[i] : most;
      sum += of_warps[i];
    }
    if (most == 0) return;
    if (threadIdx.x == 0)
      atomicMax(meter.amax, most);
    else
      atomicAdd(meter.counts + threadIdx.x - 1, sum);
  }
};

// Adds the statistics of all threads of the block to the meter.
template <int kBlock>
__device__ __forceinline__ void report(const Meter& meter, const Tally& tally) {
  __shared__ WarpTallies<kBlock> tallies;
  tallies.put(tally);
  __syncthreads();
  tallies.add_to(meter);
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

// A block's tile. A thread loads and encodes kTileHeight rows of kTileWidth columns.
inline constexpr int kTileRows = 128, kTileColumns = 64;
inline constexpr int kTileHeight = 4, kTileWidth = 8;
static_assert(kTileRows * kTileColumns == kThreads * kTileHeight * kTileWidth);

// Returns four bytes of the eight of (low, high), chosen by the nibbles of `which`.
__device__ __forceinline__ uint32_t chosen_bytes(uint32_t low, uint32_t high, uint32_t which) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, which);
#else
  const uint64_t both = uint64_t{high} << 32 | low;
  uint32_t chosen = 0;
  for (unsigned i = 0; i < 4; ++i)
    chosen |= static_cast<uint32_t>(both >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
  return chosen;
#endif
}

// Transposes 4 x 4 bytes: on return, byte r of column[c] is byte c of row[r].
__device__ __forceinline__ void transpose_bytes(uint32_t (&column)[4], const uint32_t (&row)[4]) {
  const uint32_t low_top = chosen_bytes(row[0], row[1], 0x5140),
                 low_end = chosen_bytes(row[2], row[3], 0x5140),
                 high_top = chosen_bytes(row[0], row[1], 0x7362),
                 high_end = chosen_bytes(row[2], row[3], 0x7362);
  column[0] = chosen_bytes(low_top, low_end, 0x5410);
  column[1] = chosen_bytes(low_top, low_end, 0x7632);
  column[2] = chosen_bytes(high_top, high_end, 0x5410);
  column[3] = chosen_bytes(high_top, high_end, 0x7632);
}

// The tile's codes in shared memory, transposed: a column has 32 words of 4 rows each. The position of a
// column's groups of 4 words is permuted by the column, so that the words that a warp writes at once, 4 of
// each of 8 columns, lie in 32 different banks.
struct TurnedTile {
  alignas(16) uint32_t words[kTileColumns][kTileRows / 4];

  static __device__ __forceinline__ int place(int column, int group) {
    return (group ^ column / kTileWidth) * 4;
  }
};

// Encodes a block's tile of a matrix (N, C). values(row, column) returns 8 elements of a row, and
// scale(values, column, tally) scales and counts them. A thread loads all its rows before it scales the
// first, so that 4 loads are in flight at once. The codes go directly to `to` (if not null), 8 bytes per
// thread, and through shared memory to the transposed copy, 16 bytes per thread. All threads of the block
// call it. REQUIRES: N and C multiples of 8.
template <typename Format, typename Values, typename Scale>
__device__ __forceinline__ void encode_tile(Format* to, Format* transposed, int64_t N, int64_t C,
                                            const Meter& meter, const Values& values, const Scale& scale) {
  __shared__ TurnedTile tile;
  __shared__ WarpTallies<kThreads> tallies;
  constexpr int kAcross = kTileColumns / kTileWidth;  // threads across the tile
  const int64_t first_column = int64_t{blockIdx.y} * kTileColumns,
                first_row = int64_t{blockIdx.x} * kTileRows;
  const int thread = static_cast<int>(threadIdx.x);
  const int left = thread % kAcross * kTileWidth, top = thread / kAcross * kTileHeight;
  Tally tally;
  if (first_row + top < N && first_column + left < C) {
    Floats<kTileWidth> rows[kTileHeight];
#pragma unroll
    for (int r = 0; r < kTileHeight; ++r) rows[r] = values(first_row + top + r, first_column + left);
    Raw<uint32_t, 2> codes[kTileHeight];
#pragma unroll
    for (int r = 0; r < kTileHeight; ++r) {
      Floats<kTileWidth>& v = rows[r];
      scale(v, first_column + left, tally);
#pragma unroll
      for (int k = 0; k < 2; ++k)
        codes[r].at[k] = pack_fp8<Format>(v.at[4 * k], v.at[4 * k + 1]) |
                         static_cast<uint32_t>(pack_fp8<Format>(v.at[4 * k + 2], v.at[4 * k + 3])) << 16;
    }
#pragma unroll
    for (int r = 0; r < kTileHeight; ++r)
      if (to) store_bytes(to + (first_row + top + r) * C + first_column + left, codes[r]);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      uint32_t columns[4];
      transpose_bytes(columns, {codes[0].at[k], codes[1].at[k], codes[2].at[k], codes[3].at[k]});
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int column = left + 4 * k + c, word = top / 4;
        tile.words[column][TurnedTile::place(column, word / 4) + word % 4] = columns[c];
      }
    }
  }
  tallies.put(tally);
  __syncthreads();
  tallies.add_to(meter);
  constexpr int kDown = kTileRows / 16;  // threads along a column
#pragma unroll
  for (int half = 0; half < kTileColumns * kDown / kThreads; ++half) {
    const int place = half * kThreads + thread, column = place / kDown, group = place % kDown;
    const int64_t row = first_row + group * 16;
    if (row >= N || first_column + column >= C) continue;
    const uint32_t* words = &tile.words[column][TurnedTile::place(column, group)];
    Format* at = transposed + (first_column + column) * N + row;
    if (N % 16 == 0) {
      store_bytes(at, *reinterpret_cast<const Raw<uint32_t, 4>*>(words));
    } else {  // rows of the copy begin at multiples of 8 bytes, and the last group may have 8 rows
      store_bytes(at, *reinterpret_cast<const Raw<uint32_t, 2>*>(words));
      if (row + 8 < N) store_bytes(at + 8, *reinterpret_cast<const Raw<uint32_t, 2>*>(words + 2));
    }
  }
}

// Rows are along x, because there may be more than the 65535 blocks of y.
inline dim3 tiles_of(int64_t N, int64_t C) { return {blocks_for(N, kTileRows), blocks_for(C, kTileColumns)}; }

}  // namespace ingot::cuda::fp8
