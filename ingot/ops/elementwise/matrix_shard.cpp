#include "ingot/ops/matrix_shard.h"

#include <algorithm>
#include <cstring>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/core/float16.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"

namespace ingot {

namespace cuda {  // matrix_shard.cu
decltype(ingot::put_shard) put_shard;
decltype(ingot::cut_shard) cut_shard;
}  // namespace cuda

namespace {

// Calls f(shard, matrix, count) for each row of the rects: `count` elements of the shard from offset
// `shard` on correspond to those of the matrix (of C columns) from offset `matrix` on.
template <typename F>
void for_each_row(std::span<const Rect> rects, int64_t C, F&& f) {
  int64_t here = 0;
  for (const Rect& rect : rects) {
    parallel_for(rect.rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, rect.columns)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t r = begin; r < end; ++r)
                     f(here + r * rect.columns, (rect.row + r) * C + rect.column, rect.columns);
                 });
    here += rect.elements();
  }
}

void check_shard(const Tensor& matrix, const Tensor& shard, std::span<const Rect> rects, const char* op) {
  check_tensor(matrix, DType::f32, {matrix.dim(0), matrix.dim(1)}, op);
  int64_t elements = 0;
  for (const Rect& rect : rects) {
    elements += rect.elements();
    INGOT_CHECK(rect.row >= 0 && rect.column >= 0 && rect.row + rect.rows <= matrix.dim(0) &&
                    rect.column + rect.columns <= matrix.dim(1),
                "{}: rows {} + {} and columns {} + {} are not in a matrix {}", op, rect.row, rect.rows,
                rect.column, rect.columns, matrix.shape.to_string());
  }
  check_tensor(shard, shard.dtype, {elements}, op);
}

}  // namespace

void put_shard(const Tensor& matrix, const Tensor& shard, std::span<const Rect> rects, Stream& stream) {
  const WorkSpan span(stream, "shards of matrices", traffic({shard, shard}));
  if (span.plans()) return;
  check_shard(matrix, shard, rects, "put_shard");
  INGOT_CHECK(shard.dtype == DType::f32, "put_shard: shard must be f32, got {}", name(shard.dtype));
  if constexpr (kHasCuda) {
    if (matrix.device == Device::kCuda) return cuda::put_shard(matrix, shard, rects, stream);
  }
  for_each_row(rects, matrix.dim(1), [&](int64_t from, int64_t to, int64_t count) {
    std::memcpy(matrix.as<float>() + to, shard.as<float>() + from,
                static_cast<size_t>(count) * sizeof(float));
  });
}

void cut_shard(const Tensor& shard, const Tensor& matrix, std::span<const Rect> rects, Stream& stream) {
  const WorkSpan span(stream, "shards of matrices", traffic({shard, shard}));
  if (span.plans()) return;
  check_shard(matrix, shard, rects, "cut_shard");
  INGOT_CHECK(shard.dtype == DType::f32 || shard.dtype == DType::bf16,
              "cut_shard: shard must be f32 or bf16, got {}", name(shard.dtype));
  if constexpr (kHasCuda) {
    if (matrix.device == Device::kCuda) return cuda::cut_shard(shard, matrix, rects, stream);
  }
  for_each_row(rects, matrix.dim(1), [&](int64_t to, int64_t from, int64_t count) {
    const float* x = matrix.as<float>() + from;
    if (shard.dtype == DType::f32) {
      std::memcpy(shard.as<float>() + to, x, static_cast<size_t>(count) * sizeof(float));
      return;
    }
    bf16* y = shard.as<bf16>() + to;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i].bits = bf16(x[i]).bits;  // copying bits vectorises
  });
}

}  // namespace ingot
