#include "ingot/ops/rope.h"

#include "ingot/ops/attention/cuda_heads.h"

namespace ingot::cuda {
namespace {

// A warp owns a row (b, t) and processes its heads in turn; they share the angles. It reads and writes x
// once. With kAmax it raises amax (x.amax) to the largest magnitude that it has stored.
template <typename S, bool kAmax, typename T>
__global__ void __launch_bounds__(kThreads)
    rotate(HeadRows rows, HeadView<T> x, float direction, uint32_t* amax) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const int64_t t = row % rows.T;
  const int R = 2 * rows.half, heads = row < rows.rows ? rows.H : 0;
  const Angles<S::W, S::P> angles(rows.table + t * R, lane, rows.half, direction);
  float most = 0;
  for (int h = 0; h < heads; ++h) {
    T* head = x.at(row / rows.T, t, h);
    HeadTile<S::W, S::P> tile;
    tile.load(head, lane, rows.half, R);
    angles.turn(tile);
    tile.store(head, lane, rows.half, R);
    if constexpr (kAmax) tile.for_each(tile, [&](float& v, float) { most = std::fmax(most, std::fabs(v)); });
  }
  if constexpr (kAmax) raise<kThreads>(amax, rounded<T>(most));
}

// The same with 16 bytes per lane and several heads at a time.
template <bool kAmax, typename T>
__global__ void __launch_bounds__(kThreads)
    rotate_wide(HeadRows rows, HeadView<T> x, float direction, int packs, uint32_t* amax) {
  constexpr int W = kWide<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const int pack = lane % packs, step = kWarp / packs, H = row < rows.rows ? rows.H : 0;
  const WideAngles<W> angles(rows.table + row % rows.T * 2 * rows.half, pack, rows.half, direction);
  float most = 0;
  for (int first = lane / packs; first < H; first += kHeadsAhead * step) {
    WideHeads<T> heads;
    heads.load(x, row, rows, first, step, pack);
#pragma unroll
    for (int k = 0; k < kHeadsAhead; ++k) {
      if (first + k * step >= H) continue;
      Floats<W> a = widened(heads.a[k]), b = widened(heads.b[k]);
      angles.turn(a, b);
      if constexpr (kAmax) most = larger(larger(most, a), b);
      T* head = x.at(row / rows.T, row % rows.T, first + k * step) + pack * W;
      store(head, a);
      store(head + rows.half, b);
    }
  }
  if constexpr (kAmax) raise<kThreads>(amax, rounded<T>(most));
}

template <bool kAmax>
void launch_rotation(const Tensor& x, const Tensor& table, int64_t position_offset, float direction,
                     Stream& stream) {
  const HeadRows rows = head_rows(x, table, position_offset);
  with_dtype(x.dtype, "rope", [&]<typename T>() {
    if (const int packs = wide_packs<T>(rows, x); packs > 0)
      return launch({stream, "rope", dim3(head_blocks(rows)), dim3(kThreads)}, rotate_wide<kAmax, T>, rows,
                    HeadView<T>(x), direction, packs, amax_bits(x));
    with_head_shape(
        rows, "rope",
        [&](auto shape) {
          launch({stream, "rope", dim3(head_blocks(rows)), dim3(kThreads)}, rotate<decltype(shape), kAmax, T>,
                 rows, HeadView<T>(x), direction, amax_bits(x));
        },
        x);
  });
}

}  // namespace

void rope(const Tensor& x, const Tensor& table, int64_t position_offset, float direction, Stream& stream) {
  if (x.amax) return launch_rotation<true>(x, table, position_offset, direction, stream);
  launch_rotation<false>(x, table, position_offset, direction, stream);
}

}  // namespace ingot::cuda
