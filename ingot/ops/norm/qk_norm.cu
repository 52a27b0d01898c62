#include "ingot/ops/qk_norm.h"

#include "ingot/ops/attention/cuda_heads.h"
#include "ingot/ops/cuda_rows.h"

namespace ingot::cuda {
namespace {

template <int W, int P>
__device__ __forceinline__ float mean_product(HeadTile<W, P>& x, const HeadTile<W, P>& y, int D) {
  float sum = 0;
  x.for_each(y, [&](float& a, float b) { sum += a * b; });
  return warp_sum(sum) / static_cast<float>(D);
}

// The gains of a head of D elements, and where forward writes what it has read. Without gains all are null.
template <typename T>
struct Gains {
  const float *q, *k;
  int q_heads;
  T* raw;  // (rows, H, D), may be null

  __device__ __forceinline__ const float* of(int h) const { return h < q_heads ? q : k; }
};

// A warp owns a row (b, t) and processes its heads in turn. It reads and writes x once.
template <typename S, bool kGain, typename T>
__global__ void __launch_bounds__(kThreads)
    forward(HeadRows rows, HeadView<T> x, float* rstd, float eps, Gains<T> gains) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows.rows) return;
  const int64_t t = row % rows.T;
  const Angles<S::W, S::P> angles(rows.table + t * 2 * rows.half, lane, rows.half, 1.0f);
  for (int h = 0; h < rows.H; ++h) {
    T* head = x.at(row / rows.T, t, h);
    HeadTile<S::W, S::P> tile;
    tile.load(head, lane, rows.half, rows.D);
    if constexpr (kGain) {
      if (gains.raw) tile.store(gains.raw + (row * rows.H + h) * rows.D, lane, rows.half, rows.D);
    }
    const float r = 1.0f / std::sqrt(mean_product(tile, tile, rows.D) + eps);
    if (rstd && lane == 0) rstd[row * rows.H + h] = r;
    tile.for_each(tile, [&](float& v, float) { v *= r; });
    if constexpr (kGain) {
      HeadTile<S::W, S::P> gain;
      gain.load(gains.of(h), lane, rows.half, rows.D);
      tile.for_each(gain, [](float& v, float w) { v *= w; });
    }
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
template <bool kGain, typename T>
__global__ void __launch_bounds__(kThreads)
    forward_wide(HeadRows rows, HeadView<T> x, float* rstd, float eps, int packs, Gains<T> gains) {
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
      Floats<W> a_factor, b_factor;
      if constexpr (kGain) {
        a_factor = cuda::load<W>(gains.of(h) + pack * W);
        b_factor = cuda::load<W>(gains.of(h) + rows.half + pack * W);
        if (gains.raw) {
          T* raw = gains.raw + (row * rows.H + h) * rows.D + pack * W;
          *reinterpret_cast<Raw<T, W>*>(raw) = heads.a[k];
          *reinterpret_cast<Raw<T, W>*>(raw + rows.half) = heads.b[k];
        }
      }
#pragma unroll
      for (int i = 0; i < W; ++i) {
        a.at[i] *= r;
        b.at[i] *= r;
        if constexpr (kGain) a.at[i] *= a_factor.at[i], b.at[i] *= b_factor.at[i];
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

// The kernels of backward with gains. Block (i, 0) owns part i of the rows (b, t) and the heads of queries,
// block (i, 1) the same rows and the heads of keys. partials: (2, parts, D), the sums of either kind of
// blocks.
template <typename T>
struct GainBackward {
  HeadRows rows;
  HeadView<T> dy, raw;
  const float* rstd;
  const float *q, *k;
  int q_heads;
  float* partials;

  __device__ __forceinline__ const float* gain() const { return blockIdx.y == 0 ? q : k; }
  __device__ __forceinline__ int first_head() const { return blockIdx.y == 0 ? 0 : q_heads; }
  __device__ __forceinline__ int end_head() const { return blockIdx.y == 0 ? q_heads : rows.H; }
};

constexpr int kMaxGains = 3 * 8 * kWarp;  // elements of the longest head that with_head_shape allows

// Adds the warps' sums in order.
template <typename T>
__device__ __forceinline__ void write_partials(const GainBackward<T>& g, const float (*sums)[kMaxGains]) {
  __syncthreads();
  float* partials = g.partials + (int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * g.rows.D;
  for (int c = static_cast<int>(threadIdx.x); c < g.rows.D; c += kThreads) {
    float sum = 0;
    for (int way = 0; way < kThreads / kWarp; ++way) sum += sums[way][c];
    partials[c] = sum;
  }
}

// A warp takes every kThreads / kWarp-th row of its block's part. The kernel reads dy and raw once and writes
// dy once.
template <typename S, typename T>
__global__ void __launch_bounds__(kThreads) gain_backward(GainBackward<T> g) {
  __shared__ float sums[kThreads / kWarp][kMaxGains];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, way = static_cast<int>(threadIdx.x) / kWarp;
  const HeadRows& rows = g.rows;
  HeadTile<S::W, S::P> gain, total{};
  gain.load(g.gain(), lane, rows.half, rows.D);
  const PartRows part(rows.rows, blockIdx.x, gridDim.x);
  for (int64_t row = part.begin + way; row < part.end; row += kThreads / kWarp) {
    const int64_t b = row / rows.T, t = row % rows.T;
    const Angles<S::W, S::P> angles(rows.table + t * 2 * rows.half, lane, rows.half, -1.0f);
    for (int h = g.first_head(); h < g.end_head(); ++h) {
      HeadTile<S::W, S::P> d, x;
      d.load(g.dy.at(b, t, h), lane, rows.half, rows.D);
      x.load(g.raw.at(b, t, h), lane, rows.half, rows.D);
      angles.turn(d);
      const float r = g.rstd[row * rows.H + h];
      x.for_each(d, [&](float& v, float) { v *= r; });
      HeadTile<S::W, S::P> products = x;
      products.for_each(d, [](float& v, float w) { v *= w; });
      total.for_each(products, [](float& v, float w) { v += w; });
      d.for_each(gain, [](float& v, float w) { v *= w; });
      const float mean = mean_product(d, x, rows.D);
      d.for_each(x, [&](float& v, float w) { v = (v - w * mean) * r; });
      d.store(g.dy.at(b, t, h), lane, rows.half, rows.D);
    }
  }
  total.store(sums[way], lane, rows.half, rows.D);
  write_partials(g, sums);
}

// The same with 16 bytes per lane. Two blocks fit a multiprocessor, which they would not if a lane loaded
// another head ahead.
template <typename T>
__global__ void __launch_bounds__(kThreads) gain_backward_wide(GainBackward<T> g, int packs) {
  __shared__ float sums[kThreads / kWarp][kMaxGains];
  constexpr int W = kWide<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, way = static_cast<int>(threadIdx.x) / kWarp;
  const int pack = lane % packs, step = kWarp / packs;
  HeadRows rows = g.rows;
  const int H = rows.H;
  rows.H = g.end_head();
  const float* gain = g.gain() + pack * W;
  Floats<W> total_a{}, total_b{};
  const PartRows part(rows.rows, blockIdx.x, gridDim.x);
  for (int64_t row = part.begin + way; row < part.end; row += kThreads / kWarp) {
    const WideAngles<W> angles(rows.table + row % rows.T * 2 * rows.half, pack, rows.half, -1.0f);
    for (int begin = g.first_head(); begin < rows.H; begin += step) {
      const int h = begin + lane / packs;
      WideHeads<T, 1> gradients, inputs;
      gradients.load(g.dy, row, rows, h, step, pack);
      inputs.load(g.raw, row, rows, h, step, pack);
      Floats<W> a{}, b{}, x_a{}, x_b{};
      float r = 0;
      if (h < rows.H) {
        a = widened(gradients.a[0]), b = widened(gradients.b[0]);
        x_a = widened(inputs.a[0]), x_b = widened(inputs.b[0]);
        r = g.rstd[row * H + h];
      }
      angles.turn(a, b);
      const Floats<W> gain_a = cuda::load<W>(gain), gain_b = cuda::load<W>(gain + rows.half);
      float sum = 0;
#pragma unroll
      for (int i = 0; i < W; ++i) {
        x_a.at[i] *= r, x_b.at[i] *= r;
        total_a.at[i] += a.at[i] * x_a.at[i], total_b.at[i] += b.at[i] * x_b.at[i];
        a.at[i] *= gain_a.at[i], b.at[i] *= gain_b.at[i];
        sum += a.at[i] * x_a.at[i] + b.at[i] * x_b.at[i];
      }
      const float mean = head_sum(sum, packs) / static_cast<float>(rows.D);
      if (h >= rows.H) continue;
#pragma unroll
      for (int i = 0; i < W; ++i) {
        a.at[i] = (a.at[i] - x_a.at[i] * mean) * r;
        b.at[i] = (b.at[i] - x_b.at[i] * mean) * r;
      }
      T* head = g.dy.at(row / rows.T, row % rows.T, h) + pack * W;
      store(head, a);
      store(head + rows.half, b);
    }
  }
#pragma unroll
  for (int i = 0; i < W; ++i) {  // over the heads that the warp holds at once
    for (int mask = packs; mask < kWarp; mask *= 2) {
      total_a.at[i] += __shfl_xor_sync(0xffffffffu, total_a.at[i], mask);
      total_b.at[i] += __shfl_xor_sync(0xffffffffu, total_b.at[i], mask);
    }
    if (lane >= packs) continue;
    sums[way][pack * W + i] = total_a.at[i];
    sums[way][rows.half + pack * W + i] = total_b.at[i];
  }
  write_partials(g, sums);
}

// Returns the lanes per head of the wide kernels, which rotate all of a head; 0 if they cannot be used.
template <typename T, typename... Tensors>
int lanes_of_head(const HeadRows& rows, const Tensors&... views) {
  return 2 * rows.half == rows.D ? wide_packs<T>(rows, views...) : 0;
}

// Views a gain as the heads of one token, for the choice of a kernel by alignment. Without gains it is x.
Tensor gain_view(const Tensor& gain, const Tensor& x) {
  return gain ? gain.reshape({1, 1, 1, gain.dim(0)}) : x;
}

template <bool kGain>
void launch_forward(const char* op, const QkNormOperands& o, Stream& stream) {
  const Tensor &x = o.x, &copy = o.raw ? o.raw : x;
  const HeadRows rows = head_rows(x, o.table, o.position_offset);
  with_dtype(x.dtype, op, [&]<typename T>() {
    const Gains<T> there{optional<float>(o.gains.q), optional<float>(o.gains.k),
                         static_cast<int>(o.gains.q_heads), optional<T>(o.raw)};
    const Tensor q = gain_view(o.gains.q, x), k = gain_view(o.gains.k, x);
    if (const int packs = lanes_of_head<T>(rows, x, copy, q, k); packs > 0)
      return launch({stream, op, dim3(head_blocks(rows)), dim3(kThreads)}, forward_wide<kGain, T>, rows,
                    HeadView<T>(x), optional<float>(o.rstd), o.eps, packs, there);
    with_head_shape(
        rows, op,
        [&](auto shape) {
          launch({stream, op, dim3(head_blocks(rows)), dim3(kThreads)}, forward<decltype(shape), kGain, T>,
                 rows, HeadView<T>(x), optional<float>(o.rstd), o.eps, there);
        },
        x, copy, q, k);
  });
}

}  // namespace

void qk_norm_forward(const Tensor& x, const Tensor& rstd, const Tensor& table, int64_t position_offset,
                     float eps, Stream& stream) {
  launch_forward<false>(
      "qk_norm_forward",
      {.x = x, .rstd = rstd, .table = table, .position_offset = position_offset, .eps = eps}, stream);
}

void qk_norm_gain_forward(const QkNormOperands& o, Stream& stream) {
  launch_forward<true>("qk_norm_gain_forward", o, stream);
}

void qk_norm_gain_backward(const QkNormBackwardOperands& o, Stream& stream) {
  const char* op = "qk_norm_gain_backward";
  const Tensor &dy = o.dy, &raw = o.raw;
  const QkGains &d_gains = o.d_gains, &gains = o.gains;
  const HeadRows rows = head_rows(dy, o.table, o.position_offset);
  const int64_t parts = row_part_count(rows.rows);
  float* partials = row_scratch(o.scratch, 2, rows.D, op);
  with_dtype(dy.dtype, op, [&]<typename T>() {
    const GainBackward<T> g{.rows = rows,
                            .dy = HeadView<T>(dy),
                            .raw = HeadView<T>(raw),
                            .rstd = o.rstd.as<float>(),
                            .q = gains.q.as<float>(),
                            .k = gains.k.as<float>(),
                            .q_heads = static_cast<int>(gains.q_heads),
                            .partials = partials};
    const dim3 blocks(static_cast<unsigned>(parts), 2);
    const Tensor q = gain_view(gains.q, dy), k = gain_view(gains.k, dy);
    if (const int packs = lanes_of_head<T>(rows, dy, raw, q, k); packs > 0)
      return launch({stream, op, blocks, dim3(kThreads)}, gain_backward_wide<T>, g, packs);
    with_head_shape(
        rows, op,
        [&](auto shape) {
          launch({stream, op, blocks, dim3(kThreads)}, gain_backward<decltype(shape), T>, g);
        },
        dy, raw, q, k);
  });
  if (!d_gains.q) return;
  add_row_parts(d_gains.q, partials, parts, stream);
  add_row_parts(d_gains.k, partials + parts * rows.D, parts, stream);
}

void qk_norm_backward(const Tensor& dy, const Tensor& y, const Tensor& rstd, const Tensor& table,
                      int64_t position_offset, Stream& stream) {
  const char* op = "qk_norm_backward";
  const HeadRows rows = head_rows(dy, table, position_offset);
  with_dtype(dy.dtype, op, [&]<typename T>() {
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
