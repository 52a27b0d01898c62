#include "ingot/ops/qk_norm.h"

#include "ingot/ops/attention/cuda_heads.h"

namespace ingot::cuda {
namespace {

template <int W, int P>
__device__ __forceinline__ float mean_product(HeadTile<W, P>& x, const HeadTile<W, P>& y, int D) {
  float sum = 0;
  x.for_each(y, [&](float& a, float b) { sum += a * b; });
  return warp_sum(sum) / static_cast<float>(D);
}

// A warp owns a row (b, t) and processes its heads in turn. It reads and writes x once.
template <typename S, typename T>
__global__ void __launch_bounds__(kThreads) forward(HeadRows rows, HeadView<T> x, float* rstd, float eps) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows.rows) return;
  const int64_t t = row % rows.T;
  const Angles<S::W, S::P> angles(rows.table + t * 2 * rows.half, lane, rows.half, 1.0f);
  for (int h = 0; h < rows.H; ++h) {
    T* head = x.at(row / rows.T, t, h);
    HeadTile<S::W, S::P> tile;
    tile.load(head, lane, rows.half, rows.D);
    const float r = 1.0f / std::sqrt(mean_product(tile, tile, rows.D) + eps);
    if (rstd && lane == 0) rstd[row * rows.H + h] = r;
    tile.for_each(tile, [&](float& v, float) { v *= r; });
    angles.turn(tile);
    tile.store(head, lane, rows.half, rows.D);
  }
}

// As forward. The kernel reads dy and y once and writes dy once.
template <typename S, typename T>
__global__ void __launch_bounds__(kThreads)
    backward(HeadRows rows, HeadView<T> dy, HeadView<T> y, const float* rstd) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows.rows) return;
  const int64_t t = row % rows.T;
  const Angles<S::W, S::P> angles(rows.table + t * 2 * rows.half, lane, rows.half, -1.0f);
  for (int h = 0; h < rows.H; ++h) {
    T* gradient = dy.at(row / rows.T, t, h);
    HeadTile<S::W, S::P> g, out;
    g.load(gradient, lane, rows.half, rows.D);
    out.load(y.at(row / rows.T, t, h), lane, rows.half, rows.D);
    const float mean = mean_product(g, out, rows.D), r = rstd[row * rows.H + h];
    g.for_each(out, [&](float& v, float o) { v = (v - o * mean) * r; });
    angles.turn(g);
    g.store(gradient, lane, rows.half, rows.D);
  }
}

}  // namespace

void qk_norm_forward(const Tensor& x, const Tensor& rstd, const Tensor& table, int64_t position_offset,
                     float eps, Stream& stream) {
  const char* op = "qk_norm_forward";
  const HeadRows rows = head_rows(x, table, position_offset);
  with_dtype(x.dtype, op, [&](auto value) {
    using T = decltype(value);
    with_head_shape(
        rows, op,
        [&](auto shape) {
          launch({stream, op, dim3(head_blocks(rows)), dim3(kThreads)}, forward<decltype(shape), T>, rows,
                 HeadView<T>(x), optional<float>(rstd), eps);
        },
        x);
  });
}

void qk_norm_backward(const Tensor& dy, const Tensor& y, const Tensor& rstd, const Tensor& table,
                      int64_t position_offset, Stream& stream) {
  const char* op = "qk_norm_backward";
  const HeadRows rows = head_rows(dy, table, position_offset);
  with_dtype(dy.dtype, op, [&](auto value) {
    using T = decltype(value);
    with_head_shape(
        rows, op,
        [&](auto shape) {
          launch({stream, op, dim3(head_blocks(rows)), dim3(kThreads)}, backward<decltype(shape), T>, rows,
                 HeadView<T>(dy), HeadView<T>(y), rstd.as<float>());
        },
        dy, y);
  });
}

}  // namespace ingot::cuda
