// RMSNorm and LayerNorm over rows; kCentred selects LayerNorm, which subtracts the mean.
#include "ingot/ops/norm.h"

#include "ingot/ops/cuda_rows.h"

namespace ingot::cuda {

namespace norm {

template <typename T>
struct ForwardRows {
  T *y, *sum;
  float *mean, *rstd;
  const T *x, *residual;
  const float *w, *b;
  float eps;
  int64_t N;
  int C;
  uint32_t* amax;  // the bits of the largest |y|, or null
};

template <typename T>
struct BackwardRows {
  T* dx;
  float *dw_parts, *db_parts;
  const T *dy, *x, *d_residual;
  const float *w, *mean, *rstd;
  int64_t N;
  int C;
  uint32_t* amax;  // the bits of the largest |dx|, or null
};

// Returns W weights from `column` on; 1 if there are none.
template <int W>
__device__ __forceinline__ Floats<W> factors(const float* w, int column) {
  if (w) return load<W>(w + column);
  Floats<W> ones;
#pragma unroll
  for (int i = 0; i < W; ++i) ones.at[i] = 1;
  return ones;
}

// Computes row n and returns the largest |y| of the caller's elements.
template <bool kCentred, bool kResidual, typename S, typename T>
__device__ __forceinline__ float forward_row(const ForwardRows<T>& a, int64_t n, int lane) {
  typename S::Tile x;
  x.load(a.x + n * a.C, lane, a.C);
  if constexpr (kResidual) {
    typename S::Tile residual;
    residual.load(a.residual + n * a.C, lane, a.C);
    x.for_each(lane, a.C, [&](float& v, int p, int i) { v = rounded<T>(v + residual.pack[p].at[i]); });
    x.store(a.sum + n * a.C, lane, a.C);
  }
  const float count = static_cast<float>(a.C);
  float mean = 0, squares = 0;
  if constexpr (kCentred) {
    x.for_each(lane, a.C, [&](float& v, int, int) { mean += v; });
    mean = group_sum<S::kGroup>(mean) / count;
  }
  x.for_each(lane, a.C, [&](float& v, int, int) { squares += (v - mean) * (v - mean); });
  const float rstd = 1.0f / std::sqrt(group_sum<S::kGroup>(squares) / count + a.eps);
  if (lane == 0 && a.rstd) a.rstd[n] = rstd;
  if (kCentred && lane == 0 && a.mean) a.mean[n] = mean;
#pragma unroll
  for (int p = 0; p < S::kPacks; ++p) {
    const int column = S::Tile::column(p, lane);
    if (column >= a.C) continue;
    const Floats<S::kWidth> w = factors<S::kWidth>(a.w, column);
#pragma unroll
    for (int i = 0; i < S::kWidth; ++i) x.pack[p].at[i] = (x.pack[p].at[i] - mean) * rstd * w.at[i];
    if (!a.b) continue;
    const Floats<S::kWidth> b = load<S::kWidth>(a.b + column);
#pragma unroll
    for (int i = 0; i < S::kWidth; ++i) x.pack[p].at[i] += b.at[i];
  }
  x.store(a.y + n * a.C, lane, a.C);
  if (!a.amax) return 0;
  float most = 0;
  x.for_each(lane, a.C, [&](float& v, int, int) { most = std::fmax(most, std::fabs(v)); });
  return rounded<T>(most);
}

// A group of threads owns a row and keeps it in registers between the statistics and the result: the
// kernel reads x (and the residual) once and writes y (and the sum) once.
template <bool kCentred, bool kResidual, typename S, typename T>
__global__ void __launch_bounds__(S::kBlock) forward(ForwardRows<T> a) {
  const int lane = static_cast<int>(threadIdx.x) % S::kGroup;
  const int64_t n = int64_t{blockIdx.x} * S::kRows + threadIdx.x / S::kGroup;
  // Whole warps have no row, so the shuffles within a row stay complete.
  const float most = n < a.N ? forward_row<kCentred, kResidual, S>(a, n, lane) : 0.0f;
  if (a.amax) raise<S::kBlock>(a.amax, most);
}

// parts[block] = sum over the groups of the block of their tiles.
template <typename S>
__device__ __forceinline__ void store_part(typename S::Tile& tile, float* parts, int lane, int C) {
  float* row = parts + int64_t{blockIdx.x} * C;
  if constexpr (S::kRows == 1) {
    tile.store(row, lane, C);
  } else {
    __shared__ float of_group[S::kRows][S::kColumns];
    const int group = static_cast<int>(threadIdx.x) / S::kGroup;
    __syncthreads();  // waits for readers of the previous tile
    tile.for_each(lane, C,
                  [&](float& v, int p, int i) { of_group[group][S::Tile::column(p, lane) + i] = v; });
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < C; column += S::kBlock) {
      float sum = 0;
      for (int k = 0; k < S::kRows; ++k) sum += of_group[k][column];
      row[column] = sum;
    }
  }
}

// RowInputs holds the values that backward reads for one row.
template <bool kCentred, typename S, typename T>
struct RowInputs {
  typename S::template RawTile<T> x, dy, d_residual;
  float mean, rstd;

  __device__ __forceinline__ void load(const BackwardRows<T>& a, int64_t n, int lane) {
    x.load(a.x + n * a.C, lane, a.C);
    dy.load(a.dy + n * a.C, lane, a.C);
    if (a.d_residual) d_residual.load(a.d_residual + n * a.C, lane, a.C);
    rstd = a.rstd[n];
    mean = kCentred ? a.mean[n] : 0.0f;
  }
};

// Calls f(p, v, dy, g) for each pack: the normalised values, dy, and dy * w.
template <typename S, typename Row, typename F>
__device__ __forceinline__ void for_each_pack(const Row& row, const float* w, int lane, int C, F&& f) {
#pragma unroll
  for (int p = 0; p < S::kPacks; ++p) {
    const int column = S::Tile::column(p, lane);
    if (column >= C) continue;
    Floats<S::kWidth> v = widened(row.x.pack[p]), g = factors<S::kWidth>(w, column);
    const Floats<S::kWidth> dy = widened(row.dy.pack[p]);
#pragma unroll
    for (int i = 0; i < S::kWidth; ++i) {
      v.at[i] = (v.at[i] - row.mean) * row.rstd;
      g.at[i] *= dy.at[i];
    }
    f(p, v, dy, g);
  }
}

// Two blocks of a multiprocessor run at once, as the number of parts presumes, unless the sums of a thread
// take too many registers.
template <bool kCentred, typename S>
inline constexpr int kBackwardBlocks = S::kBlock <= 256 && S::kWidth > 1 &&
                                               S::kWidth* S::kPacks <= (kCentred ? 24 : 32)
                                           ? 2
                                           : 1;

// A block owns a contiguous range of rows, which its groups of threads process in turn; the sums for dw
// and db stay in registers. The kernel reads dy, x (and d_residual) once and writes dx once. A thread holds a
// row in its own dtype and computes v and g twice. A block that owns one row at a time reads the next one
// early.
template <bool kCentred, typename S, typename T>
__global__ void __launch_bounds__(S::kBlock, (kBackwardBlocks<kCentred, S>)) backward(BackwardRows<T> a) {
  constexpr int W = S::kWidth;
  constexpr bool kReadsEarly = S::kRows == 1 && S::kPacks * W <= 8;
  const int lane = static_cast<int>(threadIdx.x) % S::kGroup;
  const PartRows rows(a.N, blockIdx.x, gridDim.x);
  const float count = static_cast<float>(a.C);
  float most = 0;
  typename S::Tile dw{}, db{};
  RowInputs<kCentred, S, T> row, next;
  const int64_t first = rows.begin + threadIdx.x / S::kGroup;
  if (kReadsEarly && first < rows.end) next.load(a, first, lane);
  for (int64_t n = first; n < rows.end; n += S::kRows) {
    if constexpr (kReadsEarly) {
      row = next;
      if (n + S::kRows < rows.end) next.load(a, n + S::kRows, lane);
    } else {
      row.load(a, n, lane);
    }
    float d_mean = 0, product_mean = 0;
    for_each_pack<S>(row, a.w, lane, a.C, [&](int p, const auto& v, const auto& dy, const auto& g) {
#pragma unroll
      for (int i = 0; i < W; ++i) {
        if (a.dw_parts) dw.pack[p].at[i] += dy.at[i] * v.at[i];
        if (kCentred && a.db_parts) db.pack[p].at[i] += dy.at[i];
        d_mean += g.at[i];
        product_mean += g.at[i] * v.at[i];
      }
    });
    d_mean = kCentred ? group_sum<S::kGroup>(d_mean) / count : 0.0f;
    product_mean = group_sum<S::kGroup>(product_mean) / count;
    row.x.forget_results();
    row.dy.forget_results();
    for_each_pack<S>(row, a.w, lane, a.C, [&](int p, const auto& v, const auto&, const auto& g) {
      Floats<W> dx;
#pragma unroll
      for (int i = 0; i < W; ++i) dx.at[i] = row.rstd * (g.at[i] - d_mean - v.at[i] * product_mean);
      if (a.d_residual) {
        const Floats<W> d = widened(row.d_residual.pack[p]);
#pragma unroll
        for (int i = 0; i < W; ++i) dx.at[i] += d.at[i];
      }
      store(a.dx + n * a.C + S::Tile::column(p, lane), dx);
      most = larger(most, dx);
    });
  }
  if (a.amax) raise<S::kBlock>(a.amax, rounded<T>(most));
  if (a.dw_parts) store_part<S>(dw, a.dw_parts, lane, a.C);
  if (kCentred && a.db_parts) store_part<S>(db, a.db_parts, lane, a.C);
}

template <bool kCentred>
void run_forward(const NormOperands& t, const char* op, Stream& stream) {
  const int64_t N = t.x.dim(0), C = t.x.dim(1);
  with_dtype(t.x.dtype, op, [&]<typename T>() {
    with_row_shape<T>(allows_wide(C, t.y, t.sum, t.x, t.residual, t.w, t.b), C, op, [&](auto shape) {
      using S = decltype(shape);
      const ForwardRows<T> rows{optional<T>(t.y),
                                optional<T>(t.sum),
                                optional<float>(t.mean),
                                optional<float>(t.rstd),
                                optional<T>(t.x),
                                optional<T>(t.residual),
                                optional<float>(t.w),
                                optional<float>(t.b),
                                t.eps,
                                N,
                                static_cast<int>(C),
                                amax_bits(t.y)};
      const Launch how{stream, op, dim3(blocks_for(N, S::kRows)), dim3(S::kBlock)};
      if (t.residual)
        launch(how, forward<kCentred, true, S, T>, rows);
      else
        launch(how, forward<kCentred, false, S, T>, rows);
    });
  });
}

template <bool kCentred>
void run_backward(const NormBackwardOperands& t, const char* op, Stream& stream) {
  const int64_t N = t.x.dim(0), C = t.x.dim(1);
  const int64_t sums = (t.dw ? 1 : 0) + (t.db ? 1 : 0);
  float* parts = sums > 0 ? row_scratch(t.scratch, sums, C, op) : nullptr;
  float* dw_parts = t.dw ? parts : nullptr;
  float* db_parts = t.db ? parts + (t.dw ? kRowParts * C : 0) : nullptr;
  with_dtype(t.x.dtype, op, [&]<typename T>() {
    with_row_shape<T>(allows_wide(C, t.dx, t.dy, t.x, t.w, t.d_residual, t.scratch), C, op, [&](auto shape) {
      using S = decltype(shape);
      const BackwardRows<T> rows{t.dx.as<T>(),
                                 dw_parts,
                                 db_parts,
                                 t.dy.as<T>(),
                                 t.x.as<T>(),
                                 optional<T>(t.d_residual),
                                 optional<float>(t.w),
                                 optional<float>(t.mean),
                                 t.rstd.as<float>(),
                                 N,
                                 static_cast<int>(C),
                                 amax_bits(t.dx)};
      launch({stream, op, dim3(blocks_for(row_part_count(N), 1)), dim3(S::kBlock)}, backward<kCentred, S, T>,
             rows);
    });
  });
  if (t.dw) add_row_parts(t.dw, dw_parts, row_part_count(N), stream);
  if (t.db) add_row_parts(t.db, db_parts, row_part_count(N), stream);
}

}  // namespace norm

void layernorm_forward(const NormOperands& t, Stream& stream) {
  norm::run_forward<true>(t, "layernorm_forward", stream);
}
void rmsnorm_forward(const NormOperands& t, Stream& stream) {
  norm::run_forward<false>(t, "rmsnorm_forward", stream);
}
void layernorm_backward(const NormBackwardOperands& t, Stream& stream) {
  norm::run_backward<true>(t, "layernorm_backward", stream);
}
void rmsnorm_backward(const NormBackwardOperands& t, Stream& stream) {
  norm::run_backward<false>(t, "rmsnorm_backward", stream);
}

}  // namespace ingot::cuda
