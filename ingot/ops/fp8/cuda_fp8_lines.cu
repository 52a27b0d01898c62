// Casts to FP8 with a separate scale for each row or column.
#include "ingot/core/copy.h"
#include "ingot/ops/cuda_fp8.h"
#include "ingot/ops/cuda_rows.h"
#include "ingot/ops/fp8/cuda_fp8_tile.h"

namespace ingot::cuda {
namespace {

using fp8::Meter;
using fp8::Tally;

__device__ __forceinline__ float line_scale(float amax) {
  return fp8::scale_of(amax, static_cast<double>(f8e4m3::kMax), true);
}

// A group of threads owns a row and reads it once.
template <typename S, typename T>
__global__ void __launch_bounds__(S::kBlock)
    encode_rows(f8e4m3* to, float* inverse, const T* x, int64_t N, int C, Meter meter) {
  const int lane = static_cast<int>(threadIdx.x) % S::kGroup;
  const int64_t n = int64_t{blockIdx.x} * S::kRows + threadIdx.x / S::kGroup;
  Tally tally;
  if (n < N) {
    typename S::Tile tile;
    tile.load(x + n * C, lane, C);
    float amax = 0;
    tile.for_each(lane, C, [&](float& v, int, int) { amax = std::fmax(amax, std::fabs(v)); });
    const float scale = line_scale(group_max<S::kGroup>(amax));
    if (lane == 0) inverse[n] = 1 / scale;
#pragma unroll
    for (int p = 0; p < S::kPacks; ++p)
      if (S::Tile::column(p, lane) < C) tally.template take<f8e4m3>(tile.pack[p], scale);
    tile.store(to + n * C, lane, C);
  }
  fp8::report<S::kBlock>(meter, tally);
}

// Computes the largest |x| of each column. A thread processes W columns and every kSumRows-th of its
// block's rows.
template <int W, typename T>
__global__ void __launch_bounds__(kWarp* kSumRows)
    largest_of_columns(uint32_t* amax, const T* x, int64_t N, int64_t C) {
  __shared__ float of_way[kSumRows][kWarp * W];
  const int lane = static_cast<int>(threadIdx.x), way = static_cast<int>(threadIdx.y);
  const int64_t column = (int64_t{blockIdx.x} * kWarp + lane) * W;
  const PartRows rows(N, blockIdx.y, gridDim.y);
  Floats<W> most{};
  if (column < C)
    for (int64_t n = rows.begin + way; n < rows.end; n += kSumRows) {
      const Floats<W> v = load<W>(x + n * C + column);
#pragma unroll
      for (int i = 0; i < W; ++i) most.at[i] = std::fmax(most.at[i], std::fabs(v.at[i]));
    }
#pragma unroll
  for (int i = 0; i < W; ++i) of_way[way][i * kWarp + lane] = most.at[i];
  __syncthreads();
  if (way != 0 || column >= C) return;
#pragma unroll
  for (int i = 0; i < W; ++i) {
    float largest = 0;
    for (int k = 0; k < kSumRows; ++k) largest = std::fmax(largest, of_way[k][i * kWarp + lane]);
    atomicMax(amax + column + i, std::bit_cast<uint32_t>(largest));
  }
}

// Overwrites the amaxes in `scales` with the scales. One block.
__global__ void __launch_bounds__(kThreads)
    make_scales(float* scales, float* inverse, int64_t C, bool is_one) {
  const float first = scales[0];
  __syncthreads();
  for (int64_t c = threadIdx.x; c < C; c += kThreads) {
    scales[c] = line_scale(is_one ? first : scales[c]);
    inverse[c] = 1 / scales[c];
  }
}

// A block owns a tile (fp8::encode_tile).
template <typename T>
__global__ void __launch_bounds__(kThreads)
    encode_columns(f8e4m3* to, const T* x, int64_t N, int64_t C, const float* scales, Meter meter) {
  constexpr int W = fp8::kTileWidth;
  f8e4m3* nowhere = nullptr;
  fp8::encode_tile(
      nowhere, to, N, C, meter, [=](int64_t row, int64_t column) { return load<W>(x + row * C + column); },
      [=](Floats<W>& v, int64_t column, Tally& tally) {
        tally.template take<f8e4m3>(v, load<W>(scales + column));
      });
}

void check_matrix(const Tensor& x, const char* op) {
  INGOT_CHECK(
      x.rank() == 2 && x.is_contiguous() && x.dim(0) % 8 == 0 && x.dim(1) % 8 == 0 && is_aligned(x.data),
      "{}: x must be (N, C), contiguous, aligned, of multiples of 8, got {}", op, x.shape.to_string());
}

}  // namespace

void cast_rows_to_fp8(const Fp8Operand& to, const Tensor& x, const Fp8Meter& meter, Stream& stream) {
  const char* op = "cast_rows_to_fp8";
  check_matrix(x, op);
  const int64_t N = x.dim(0), C = x.dim(1);
  check_tensor(to.codes, DType::f8e4m3, {N, C}, op);
  check_tensor(to.inverse, DType::f32, {N}, op);
  const Meter places = fp8::meter_of(meter, op);
  with_dtype(x.dtype, op, [&]<typename T>() {
    with_row_shape<T>(allows_wide(C, x, to.codes), C, op, [&](auto shape) {
      using S = decltype(shape);
      launch({stream, op, dim3(blocks_for(N, S::kRows)), dim3(S::kBlock)}, encode_rows<S, T>,
             to.codes.as<f8e4m3>(), to.inverse.as<float>(), x.as<T>(), N, static_cast<int>(C), places);
    });
  });
}

void cast_columns_to_fp8(const Fp8Operand& to, const Tensor& x, const Tensor& scales, Fp8ColumnScales which,
                         const Fp8Meter& meter, Stream& stream) {
  const char* op = "cast_columns_to_fp8";
  check_matrix(x, op);
  const int64_t N = x.dim(0), C = x.dim(1);
  check_tensor(to.codes, DType::f8e4m3, {C, N}, op);
  check_tensor(to.inverse, DType::f32, {C}, op);
  check_tensor(scales, DType::f32, {C}, op);
  const Meter places = fp8::meter_of(meter, op);
  const bool is_one = which == Fp8ColumnScales::kOne;
  fill_zero(scales, stream);
  if (is_one) cuda::raise_amax(x.with_amax(scales.rows(0, 1)), stream);
  with_dtype(x.dtype, op, [&]<typename T>() {
    constexpr int W = kWide<T>;
    const dim3 parts(blocks_for(C, kWarp * W), static_cast<unsigned>(row_part_count(N)));
    if (!is_one)
      launch({stream, op, parts, dim3(kWarp, kSumRows)}, largest_of_columns<W, T>, float_bits(scales),
             x.as<T>(), N, C);
    launch({stream, op, dim3(1), dim3(kThreads)}, make_scales, scales.as<float>(), to.inverse.as<float>(), C,
           is_one);
    launch({stream, op, fp8::tiles_of(N, C), dim3(kThreads)}, encode_columns<T>, to.codes.as<f8e4m3>(),
           x.as<T>(), N, C, static_cast<const float*>(scales.as<float>()), places);
  });
}

}  // namespace ingot::cuda
