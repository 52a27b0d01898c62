// Kernels over rows of (N, C): the elements of a row that a thread holds, and sums over rows. For .cu files
// only.
//
// A parameter gradient is summed over rows in two steps of fixed order: each of up to kRowParts blocks adds
// a contiguous range of rows in registers and writes one row of partial sums to scratch; then add_row_parts
// adds these. The number of blocks does not depend on the device, so the bits do not either.
#pragma once

#include "ingot/core/cuda/cuda_kernel.h"
#include "ingot/ops/row_sum.h"

namespace ingot::cuda {

// The elements of one row that a thread holds: P packs of W elements, pack p at column (p * G + lane) *
// W, where G threads hold the row.
template <int W, int G, int P>
struct RowTile {
  Floats<W> pack[P];

  static __device__ __forceinline__ int column(int p, int lane) { return (p * G + lane) * W; }

  // Columns from C on read as 0.
  template <typename T>
  __device__ __forceinline__ void load(const T* row, int lane, int C) {
#pragma unroll
    for (int p = 0; p < P; ++p)
      pack[p] = column(p, lane) < C ? cuda::load<W>(row + column(p, lane)) : Floats<W>{};
  }
  template <typename T>
  __device__ __forceinline__ void store(T* row, int lane, int C) const {
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (column(p, lane) < C) cuda::store<W>(row + column(p, lane), pack[p]);
  }
  // Calls f(value, p, i) on every element below column C.
  template <typename F>
  __device__ __forceinline__ void for_each(int lane, int C, F&& f) {
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (column(p, lane) < C) {
#pragma unroll
        for (int i = 0; i < W; ++i) f(pack[p].at[i], p, i);
      }
  }
};

// The elements of one row that a thread holds as they are in memory, which takes half the registers in 16
// bits.
template <typename T, int W, int G, int P>
struct RawRowTile {
  Raw<T, W> pack[P];

  // Columns from C on are undefined.
  __device__ __forceinline__ void load(const T* row, int lane, int C) {
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (const int column = RowTile<W, G, P>::column(p, lane); column < C)
        pack[p] = load_raw<W>(row + column);
  }
  // Makes the compiler forget what it has computed from the tile, so that it computes it again instead of
  // holding it in registers.
  __device__ __forceinline__ void forget_results() {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(Raw<T, W>) % 4 == 0) {
#pragma unroll
      for (int p = 0; p < P; ++p)
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(Raw<T, W>) / 4); ++i)
          asm volatile("" : "+r"(reinterpret_cast<uint32_t*>(&pack[p])[i]));
    }
#endif
  }
};

// RowShape divides a row of C elements among kGroup threads, a warp or a block. Each thread has kPacks
// packs of kWidth elements.
template <int kWidth_, int kGroup_, int kPacks_>
struct RowShape {
  static constexpr int kWidth = kWidth_, kGroup = kGroup_, kPacks = kPacks_;
  static constexpr int kColumns = kWidth * kGroup * kPacks;
  static constexpr int kBlock = kGroup == kWarp ? 8 * kWarp : kGroup;  // threads
  static constexpr int kRows = kBlock / kGroup;                        // rows of a block at a time
  using Tile = RowTile<kWidth, kGroup, kPacks>;
  template <typename T>
  using RawTile = RawRowTile<T, kWidth, kGroup, kPacks>;
};

// Calls f with the RowShape for rows of C elements of T. The numbers of packs are those that widths of models
// need (768, 1024 and 2048 in 16 bits: 3 and 4 packs of a warp, 1 of a block); they do not change which
// thread holds an element, nor the order of a sum.
template <typename T, typename F>
void with_row_shape(bool is_wide, int64_t C, const char* op, F&& f) {
  constexpr int W = kWide<T>;
  if (is_wide && C <= RowShape<W, kWarp, 1>::kColumns) return f(RowShape<W, kWarp, 1>{});
  if (is_wide && C <= RowShape<W, kWarp, 3>::kColumns) return f(RowShape<W, kWarp, 3>{});
  if (is_wide && C <= RowShape<W, kWarp, 4>::kColumns) return f(RowShape<W, kWarp, 4>{});
  if (is_wide && C <= RowShape<W, 256, 1>::kColumns) return f(RowShape<W, 256, 1>{});
  if (is_wide && C <= RowShape<W, 256, 4>::kColumns) return f(RowShape<W, 256, 4>{});
  if (is_wide && C <= RowShape<W, 1024, 4>::kColumns) return f(RowShape<W, 1024, 4>{});
  if (C <= RowShape<1, 256, 32>::kColumns) return f(RowShape<1, 256, 32>{});
  fail(ErrorKind::kInternal,
       "{}: rows of {} elements on a CUDA device must be at most {}, or 16-byte aligned "
       "multiples of 8 of at most {}",
       op, C, RowShape<1, 256, 32>::kColumns, RowShape<W, 1024, 4>::kColumns);
}

// total (C) += sum over `parts` rows of partials (parts, C), in order.
void add_row_parts(const Tensor& total, const float* partials, int64_t parts, Stream& stream);

// Returns the checked f32 scratch for `sums` row sums of C columns.
inline float* row_scratch(const Tensor& scratch, int64_t sums, int64_t C, const char* op) {
  INGOT_CHECK(scratch && scratch.device == Device::kCuda && scratch.dtype == DType::f32 &&
                  scratch.elements() >= sums * kRowParts * C,
              "{}: scratch on the device must be f32 of at least {} x {} x {} elements, got {} {}", op, sums,
              kRowParts, C, name(scratch.dtype), scratch.shape.to_string());
  return scratch.as<float>();
}

// Returns the number of parts that N rows are split into, such that no part is empty.
inline int64_t row_part_count(int64_t N) { return std::min(N, kRowParts); }

// The rows [begin, end) that part `part` of `parts` sums.
struct PartRows {
  int64_t begin, end;
  __device__ __forceinline__ PartRows(int64_t N, int64_t part, int64_t parts)
      : begin(part * N / parts), end((part + 1) * N / parts) {}
};

// Column sums: f(n, column, values) returns W values of row n from `column` on; the kernel adds them
// over the rows of a part. Block: (kWarp columns of packs, kSumRows rows at a time); grid: (column
// blocks, parts). With kAmax, f.as_stored(v) is v as f stores it, which must be monotonic, and amax is raised
// to the largest magnitude that f has stored.
inline constexpr int kSumRows = 8;

template <int W, bool kAmax, typename F>
__global__ void __launch_bounds__(kWarp* kSumRows)
    sum_columns(float* __restrict__ partials, int64_t N, int64_t C, F f, uint32_t* amax) {
  __shared__ float sums[kSumRows][kWarp * W];
  const int lane = static_cast<int>(threadIdx.x), way = static_cast<int>(threadIdx.y);
  const int64_t column = (int64_t{blockIdx.x} * kWarp + lane) * W;
  const PartRows rows(N, blockIdx.y, gridDim.y);
  Floats<W> total{};
  float most = 0;
  if (column < C)
    for (int64_t n = rows.begin + way; n < rows.end; n += kSumRows) {
      const Floats<W> values = f(n, column);
#pragma unroll
      for (int i = 0; i < W; ++i) total.at[i] += values.at[i];
      if constexpr (kAmax) most = larger(most, values);
    }
  if constexpr (kAmax) raise<kWarp * kSumRows>(amax, f.as_stored(most));
#pragma unroll
  for (int i = 0; i < W; ++i) sums[way][i * kWarp + lane] = total.at[i];
  __syncthreads();
  if (way != 0 || column >= C) return;
#pragma unroll
  for (int i = 0; i < W; ++i) {
    float sum = 0;
    for (int k = 0; k < kSumRows; ++k) sum += sums[k][i * kWarp + lane];
    partials[int64_t{blockIdx.y} * C + column + i] = sum;
  }
}

template <int W, bool kAmax = false, typename F>
void launch_sum_columns(const Tensor& total, float* partials, int64_t N, const char* op, Stream& stream,
                        const F& f, uint32_t* amax = nullptr) {
  const int64_t C = total.elements();
  const int64_t parts = row_part_count(N);
  launch({stream, op, dim3(blocks_for(C, kWarp * W), static_cast<unsigned>(parts)), dim3(kWarp, kSumRows)},
         sum_columns<W, kAmax, F>, partials, N, C, f, amax);
  add_row_parts(total, partials, parts, stream);
}

}  // namespace ingot::cuda
