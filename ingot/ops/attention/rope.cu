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

}  // namespace

void rope(const Tensor& x, const Tensor& table, int64_t position_offset, float direction, Stream& stream) {
  const HeadRows rows = head_rows(x, table, position_offset);
  with_dtype(x.dtype, "rope", [&](auto value) {
    using T = decltype(value);
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
