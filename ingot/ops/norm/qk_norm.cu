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

// Returns the sum over the lanes that hold a head. All lanes of the warp call it.
__device__ __forceinline__ float head_sum(float value, int packs) {
  for (int mask = packs / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

// forward with 16 bytes per lane and several heads at a time.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    forward_wide(HeadRows rows, HeadView<T> x, float* rstd, float eps, int packs) {
  constexpr int W = kWide<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows.rows) return;
  const int pack = lane % packs, step = kWarp / packs;
  const WideAngles<W> angles(rows.table + row % rows.T * 2 * rows.half, pack, rows.half, 1.0f);
  for (int begin = 0; begin < rows.H; begin += kHeadsAhead * step) {
    const int first = begin + lane / packs;
    WideHeads<T> heads;
    heads.load(x, row, rows, first, step, pack);
#pragma unroll
    for (int k = 0; k < kHeadsAhead; ++k) {
      const int h = first + k * step;
      Floats<W> a{}, b{};
      if (h < rows.H) a = widened(heads.a[k]), b = widened(heads.b[k]);
      float squares = 0;
#pragma unroll
      for (int i = 0; i < W; ++i) squares += a.at[i] * a.at[i] + b.at[i] * b.at[i];
      const float r = 1.0f / std::sqrt(head_sum(squares, packs) / static_cast<float>(rows.D) + eps);
      if (h >= rows.H) continue;
      if (rstd && pack == 0) rstd[row * rows.H + h] = r;
#pragma unroll
      for (int i = 0; i < W; ++i) {
        a.at[i] *= r;
        b.at[i] *= r;
      }
      angles.turn(a, b);
      T* head = x.at(row / rows.T, row % rows.T, h) + pack * W;
      store(head, a);
      store(head + rows.half, b);
    }
  }
}

// backward with 16 bytes per lane and several heads at a time.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward_wide(HeadRows rows, HeadView<T> dy, HeadView<T> y, const float* rstd, int packs) {
  constexpr int W = kWide<T>, kAhead = 2;  // two tensors, so half as many heads
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows.rows) return;
  const int pack = lane % packs, step = kWarp / packs;
  const WideAngles<W> angles(rows.table + row % rows.T * 2 * rows.half, pack, rows.half, -1.0f);
  for (int begin = 0; begin < rows.H; begin += kAhead * step) {
    const int first = begin + lane / packs;
    WideHeads<T, kAhead> gradients, outputs;
    gradients.load(dy, row, rows, first, step, pack);
    outputs.load(y, row, rows, first, step, pack);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int h = first + k * step;
      Floats<W> a{}, b{}, y_a{}, y_b{};
      if (h < rows.H) {
        a = widened(gradients.a[k]), b = widened(gradients.b[k]);
        y_a = widened(outputs.a[k]), y_b = widened(outputs.b[k]);
      }
      float sum = 0;
#pragma unroll
      for (int i = 0; i < W; ++i) sum += a.at[i] * y_a.at[i] + b.at[i] * y_b.at[i];
      const float mean = head_sum(sum, packs) / static_cast<float>(rows.D);
      if (h >= rows.H) continue;
      const float r = rstd[row * rows.H + h];
#pragma unroll
      for (int i = 0; i < W; ++i) {
        a.at[i] = (a.at[i] - y_a.at[i] * mean) * r;
        b.at[i] = (b.at[i] - y_b.at[i] * mean) * r;
      }
      angles.turn(a, b);
      T* head = dy.at(row / rows.T, row % rows.T, h) + pack * W;
      store(head, a);
      store(head + rows.half, b);
    }
  }
}

// Returns the lanes per head of the wide kernels, which rotate all of a head; 0 if they cannot be used.
template <typename T, typename... Tensors>
int lanes_of_head(const HeadRows& rows, const Tensors&... views) {
  return 2 * rows.half == rows.D ? wide_packs<T>(rows, views...) : 0;
}

}  // namespace

void qk_norm_forward(const Tensor& x, const Tensor& rstd, const Tensor& table, int64_t position_offset,
                     float eps, Stream& stream) {
  const char* op = "qk_norm_forward";
  const HeadRows rows = head_rows(x, table, position_offset);
  with_dtype(x.dtype, op, [&](auto value) {
    using T = decltype(value);
    if (const int packs = lanes_of_head<T>(rows, x); packs > 0)
      return launch({stream, op, dim3(head_blocks(rows)), dim3(kThreads)}, forward_wide<T>, rows,
                    HeadView<T>(x), optional<float>(rstd), eps, packs);
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
    if (const int packs = lanes_of_head<T>(rows, dy, y); packs > 0)
      return launch({stream, op, dim3(head_blocks(rows)), dim3(kThreads)}, backward_wide<T>, rows,
                    HeadView<T>(dy), HeadView<T>(y), rstd.as<float>(), packs);
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
