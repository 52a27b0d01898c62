#include "ingot/ops/bias.h"

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/row_sum.h"
#include "ingot/ops/simd/vec.h"

namespace ingot {

namespace cuda {  // bias.cu
decltype(ingot::bias_forward) bias_forward;
decltype(ingot::bias_backward) bias_backward;
}  // namespace cuda

namespace {

using vec::Vec;

constexpr int64_t kGrainRows = 16;  // minimum number of rows per thread

void check_rows(const Tensor& y, const char* op) {
  INGOT_CHECK(y.rank() == 2 && y.is_contiguous(), "{}: y must be (N, C) and contiguous, got {}", op,
              y.shape.to_string());
}

// total += rows of dy, four at a time, so that one pass over `total` serves four rows.
template <typename T>
void add_rows(float* total, const T* dy, int64_t rows, int64_t C) {
  int64_t n = 0;
  for (; n + 4 <= rows; n += 4) {
    const T* row = dy + n * C;
    vec::for_each(C, [&](auto load, auto store) {
      const Vec two = load(row) + load(row + C);
      const Vec next_two = load(row + 2 * C) + load(row + 3 * C);
      store(total, load(total) + (two + next_two));
    });
  }
  for (; n < rows; ++n)
    vec::for_each(C, [&](auto load, auto store) { store(total, load(total) + load(dy + n * C)); });
}

}  // namespace

void bias_forward(const Tensor& y, const Tensor& b, Stream& stream) {
  const OpSpan span(stream, "bias", traffic({y, y, b}));
  if (span.plans()) return;
  check_rows(y, "bias_forward");
  const int64_t N = y.dim(0), C = y.dim(1);
  check_tensor(b, DType::f32, {C}, "bias_forward: b");
  if constexpr (kHasCuda) {
    if (y.device == Device::kCuda) return cuda::bias_forward(y, b, stream);
  }
  with_dtype(y.dtype, __func__, [&]<typename T>() {
    parallel_for(N, kGrainRows, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        T* row = y.as<T>() + n * C;
        vec::for_each(C, [&](auto load, auto store) { store(row, load(row) + load(b.as<float>())); });
      }
    });
  });
}

void bias_backward(const Tensor& db, const Tensor& dy, const Tensor& scratch, Stream& stream) {
  const OpSpan span(stream, "bias", traffic({db, db, dy}));
  if (span.plans()) return;
  check_rows(dy, "bias_backward");
  const int64_t N = dy.dim(0), C = dy.dim(1);
  check_tensor(db, DType::f32, {C}, "bias_backward: db");
  if constexpr (kHasCuda) {
    if (dy.device == Device::kCuda) return cuda::bias_backward(db, dy, scratch, stream);
  }
  RowSum db_sum(db, scratch);
  with_dtype(dy.dtype, __func__, [&]<typename T>() {
    parallel_ranges(N, kGrainRows, [&](int thread, int64_t begin, int64_t end) {
      add_rows(db_sum.partial(thread), dy.as<T>() + begin * C, end - begin, C);
    });
  });
  db_sum.finish();
}

}  // namespace ingot
