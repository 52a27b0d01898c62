#include "ingot/ops/matrix_shard.h"

#include "ingot/core/cuda/cuda_elementwise.h"

namespace ingot::cuda {
namespace {

// Copies W elements of a rectangle, which lie in one row: reads `from` once and writes `to` once. kPuts: from
// the shard into the matrix; otherwise from the matrix into the shard.
template <int W, bool kPuts, typename To, typename From>
struct CopyRect {
  To* to;
  const From* from;
  int64_t C;  // columns of the matrix
  uint32_t columns;

  __device__ void operator()(int64_t i) const {
    const RowColumn at(i, columns);
    const int64_t there = int64_t{at.row} * C + at.column;
    store(to + (kPuts ? there : i), load<W>(from + (kPuts ? i : there)));
  }
};

// Copies between each rectangle of the matrix and its elements of the shard. A rectangle of whole rows is one
// run in the matrix too.
template <bool kPuts, typename To, typename From>
void copy_rects(To* to, const From* from, int64_t C, std::span<const Rect> rects, const char* op,
                Stream& stream) {
  int64_t here = 0;
  for (const Rect& rect : rects) {
    const int64_t n = rect.elements(), there = rect.row * C + rect.column;
    if (n == 0) continue;
    To* target = to + (kPuts ? there : here);
    const From* source = from + (kPuts ? here : there);
    here += n;
    const int64_t run = rect.columns == C ? n : rect.columns;
    const bool has_wide_rows = run == n || (run % 8 == 0 && C % 8 == 0);
    with_width<float>(
        n % 8 == 0 && has_wide_rows && is_aligned(target) && is_aligned(source), [&](auto width) {
          constexpr int W = decltype(width)::value;
          launch_elementwise<W>(
              n, op, stream, CopyRect<W, kPuts, To, From>{target, source, C, row_length(n / run, run, op)});
        });
  }
}

}  // namespace

void put_shard(const Tensor& matrix, const Tensor& shard, std::span<const Rect> rects, Stream& stream) {
  copy_rects<true>(matrix.as<float>(), static_cast<const float*>(shard.as<float>()), matrix.dim(1), rects,
                   "put_shard", stream);
}

void cut_shard(const Tensor& shard, const Tensor& matrix, std::span<const Rect> rects, Stream& stream) {
  const float* from = matrix.as<float>();
  if (shard.dtype == DType::bf16)
    copy_rects<false>(shard.as<bf16>(), from, matrix.dim(1), rects, "cut_shard", stream);
  else
    copy_rects<false>(shard.as<float>(), from, matrix.dim(1), rects, "cut_shard", stream);
}

}  // namespace ingot::cuda
