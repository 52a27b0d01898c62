#include "ingot/ops/mix.h"

#include <algorithm>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/elementwise/row_total.h"
#include "ingot/ops/row_sum.h"

namespace ingot {

namespace cuda {  // mix.cu
decltype(ingot::mix_forward) mix_forward;
decltype(ingot::mix_backward) mix_backward;
}  // namespace cuda

namespace {

constexpr int64_t kGrainElements = 1 << 13;  // minimum number of elements per thread

int64_t grain_rows(int64_t C) { return std::max<int64_t>(1, kGrainElements / C); }

void check_rows(const Tensor& t, const Tensor& like, const char* what) {
  if (!t) return;
  INGOT_CHECK(t.dtype == like.dtype && t.rank() == 2 && t.shape == like.shape && t.strides[1] == 1,
              "{}: wanted rows {} of {} with adjacent columns, got {} of {}", what, like.shape.to_string(),
              name(like.dtype), t.shape.to_string(), name(t.dtype));
}

void check_scalar(const Tensor& t, const char* what) {
  if (t) check_tensor(t, DType::f32, {1}, what);
}

float factor(const Tensor& scalar) { return scalar ? *scalar.as<float>() : 1.0f; }

template <typename T>
T* row(const Tensor& t, int64_t n) {
  return t ? t.as<T>() + n * t.strides[0] : nullptr;
}

template <typename T>
void scale_row(T* to, const T* from, float by, int64_t C) {
  vec::for_each(C, [&](auto load, auto store) { store(to, load(from) * by); });
}

template <typename T>
float dot(const T* a, const T* b, int64_t C) {
  return vec::row_total(C, [&](auto load, auto /*store*/) { return load(a) * load(b); });
}

}  // namespace

void mix_forward(const Tensor& y, const MixTerms& terms, Stream& stream) {
  const OpSpan span(stream, "mix", traffic({y, terms.x, terms.z}));
  if (span.plans()) return;
  check_rows(terms.x, terms.x, "mix_forward: x");
  check_rows(y, terms.x, "mix_forward: y");
  check_rows(terms.z, terms.x, "mix_forward: z");
  check_scalar(terms.a, "mix_forward: a");
  check_scalar(terms.b, "mix_forward: b");
  if constexpr (kHasCuda) {
    if (y.device == Device::kCuda) return cuda::mix_forward(y, terms, stream);
  }
  const int64_t C = y.dim(1);
  const float a = factor(terms.a), b = factor(terms.b);
  with_dtype(y.dtype, __func__, [&]<typename T>() {
    parallel_for(y.dim(0), grain_rows(C), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        T* to = row<T>(y, n);
        const T *x = row<T>(terms.x, n), *z = row<T>(terms.z, n);
        if (!z) {
          scale_row(to, x, a, C);
          continue;
        }
        vec::for_each(C, [&](auto load, auto store) { store(to, load(x) * a + load(z) * b); });
      }
    });
  });
}

void mix_backward(const MixTerms& d, const Tensor& dy, const MixTerms& terms, const Tensor& scratch,
                  Stream& stream) {
  const OpSpan span(stream, "mix",
                    traffic({dy, d.x, d.z, d.a ? terms.x : Tensor{}, d.b ? terms.z : Tensor{}}));
  if (span.plans()) return;
  check_rows(dy, dy, "mix_backward: dy");
  check_rows(d.x, dy, "mix_backward: dx");
  check_rows(d.z, dy, "mix_backward: dz");
  check_rows(terms.x, dy, "mix_backward: x");
  check_rows(terms.z, dy, "mix_backward: z");
  for (const Tensor& scalar : {d.a, d.b, terms.a, terms.b}) check_scalar(scalar, "mix_backward: a scalar");
  INGOT_CHECK((!d.a || terms.x) && (!d.b || terms.z), "mix_backward: gradients of scalars need their terms");
  const int64_t parts = row_sum_parts(dy.device);
  check_tensor(scratch, DType::f32, {2, parts}, "mix_backward: scratch");
  if constexpr (kHasCuda) {
    if (dy.device == Device::kCuda) return cuda::mix_backward(d, dy, terms, scratch, stream);
  }
  const int64_t C = dy.dim(1);
  const float a = factor(terms.a), b = factor(terms.b);
  RowSum sum_a(d.a, scratch.rows(0, 1)), sum_b(d.b, scratch.rows(1, 2));
  with_dtype(dy.dtype, __func__, [&]<typename T>() {
    parallel_ranges(dy.dim(0), grain_rows(C), [&](int thread, int64_t begin, int64_t end) {
      float* of_a = d.a ? sum_a.partial(thread) : nullptr;
      float* of_b = d.b ? sum_b.partial(thread) : nullptr;
      for (int64_t n = begin; n < end; ++n) {
        const T* from = row<T>(dy, n);
        if (of_a) *of_a += dot(from, row<T>(terms.x, n), C);
        if (of_b) *of_b += dot(from, row<T>(terms.z, n), C);
        // One of the two may lie on dy, so it is written last.
        T *dx = row<T>(d.x, n), *dz = row<T>(d.z, n);
        if (dz && dz != from) scale_row(dz, from, b, C);
        if (dx) scale_row(dx, from, a, C);
        if (dz == from && dz) scale_row(dz, from, b, C);
      }
    });
  });
  sum_a.finish();
  sum_b.finish();
}

}  // namespace ingot
