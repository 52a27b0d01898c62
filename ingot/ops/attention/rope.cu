#include "ingot/ops/rope.h"

#include "ingot/ops/attention/cuda_heads.h"

namespace ingot::cuda {
namespace {

// A warp owns a row (b, t) and processes its heads in turn; they share the angles. It reads and writes x
// once.
template <typename S, typename T>
__global__ void __launch_bounds__(kThreads) rotate(HeadRows rows, HeadView<T> x, float direction) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows.rows) return;
  const int64_t t = row % rows.T;
  const int R = 2 * rows.half;
  const Angles<S::W, S::P> angles(rows.table + t * R, lane, rows.half, direction);
  for (int h = 0; h < rows.H; ++h) {
    T* head = x.at(row / rows.T, t, h);
    HeadTile<S::W, S::P> tile;
    tile.load(head, lane, rows.half, R);
    angles.turn(tile);
    tile.store(head, lane, rows.half, R);
  }
}

// The same with 16 bytes per lane and several heads at a time.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    rotate_wide(HeadRows rows, HeadView<T> x, float direction, int packs) {
  constexpr int W = kWide<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows.rows) return;
  const int pack = lane % packs, step = kWarp / packs;
  const WideAngles<W> angles(rows.table + row % rows.T * 2 * rows.half, pack, rows.half, direction);
  for (int first = lane / packs; first < rows.H; first += kHeadsAhead * step) {
    WideHeads<T> heads;
    heads.load(x, row, rows, first, step, pack);
#pragma unroll
    for (int k = 0; k < kHeadsAhead; ++k) {
      if (first + k * step >= rows.H) continue;
      Floats<W> a = widened(heads.a[k]), b = widened(heads.b[k]);
      angles.turn(a, b);
      T* head = x.at(row / rows.T, row % rows.T, first + k * step) + pack * W;
      store(head, a);
      store(head + rows.half, b);
    }
  }
}

}  // namespace

void rope(const Tensor& x, const Tensor& table, int64_t position_offset, float direction, Stream& stream) {
  const HeadRows rows = head_rows(x, table, position_offset);
  with_dtype(x.dtype, "rope", [&](auto value) {
    using T = decltype(value);
    if (const int packs = wide_packs<T>(rows, x); packs > 0)
      return launch({stream, "rope", dim3(head_blocks(rows)), dim3(kThreads)}, rotate_wide<T>, rows,
                    HeadView<T>(x), direction, packs);
    with_head_shape(
        rows, "rope",
        [&](auto shape) {
          launch({stream, "rope", dim3(head_blocks(rows)), dim3(kThreads)}, rotate<decltype(shape), T>, rows,
                 HeadView<T>(x), direction);
        },
        x);
  });
}

}  // namespace ingot::cuda
