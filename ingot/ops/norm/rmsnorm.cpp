#include "ingot/ops/rmsnorm.h"

#include <cmath>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/row_sum.h"
#include "ingot/ops/simd/vec.h"

namespace ingot {

namespace cuda {  // rmsnorm.cu
decltype(ingot::rmsnorm_forward) rmsnorm_forward;
decltype(ingot::residual_rmsnorm_forward) residual_rmsnorm_forward;
decltype(ingot::rmsnorm_backward) rmsnorm_backward;
}  // namespace cuda

namespace {

using vec::Vec;

constexpr int64_t kGrainRows = 16;  // minimum number of rows per thread

template <typename T>
float row_rstd(const T* x, int64_t C, float eps) {
  Vec squares{};
  vec::for_each(C, [&](auto load, auto) {
    const Vec v = load(x);
    squares += v * v;
  });
  return 1.0f / std::sqrt(vec::sum(squares) / static_cast<float>(C) + eps);
}

template <typename T>
void row_scale(T* y, const T* x, const float* w, float rstd, int64_t C) {
  vec::for_each(C, [&](auto load, auto store) {
    const Vec normed = load(x) * rstd;
    store(y, w ? normed * load(w) : normed);
  });
}

// Computes one row of backward. Adds dy * x * rstd into dw unless it is null.
template <typename T>
void row_backward(T* dx, float* dw, const T* dy, const T* x, const float* w, const T* d_residual, float rstd,
                  int64_t C) {
  Vec products{};
  vec::for_each(C, [&](auto load, auto store) {
    const Vec g = load(dy), v = load(x);
    if (dw) store(dw, load(dw) + g * v * rstd);
    products += (w ? g * load(w) : g) * v;
  });
  const float shift = rstd * rstd * vec::sum(products) / static_cast<float>(C);
  vec::for_each(C, [&](auto load, auto store) {
    const Vec g = w ? load(dy) * load(w) : load(dy);
    const Vec d = rstd * (g - load(x) * shift);
    store(dx, d_residual ? d + load(d_residual) : d);
  });
}

template <typename T>
T* optional(const Tensor& t) {
  return t ? t.as<T>() : nullptr;
}

void check_rows(const Tensor& x, const Tensor& w, const Tensor& rstd, const char* op) {
  INGOT_CHECK(x.rank() == 2 && x.is_contiguous(), "{}: x must be (N, C) and contiguous, got {}", op,
              x.shape.to_string());
  if (w) check_tensor(w, DType::f32, {x.dim(1)}, "rmsnorm: w");
  if (rstd) check_tensor(rstd, DType::f32, {x.dim(0)}, "rmsnorm: rstd");
}

}  // namespace

void rmsnorm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& w, float eps,
                     Stream& stream) {
  const OpSpan span(stream, "norm", traffic({y, rstd, x, w}));
  if (span.plans()) return;
  check_rows(x, w, rstd, "rmsnorm_forward");
  check_tensor(y, x.dtype, x.shape, "rmsnorm_forward: y");
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda) return cuda::rmsnorm_forward(y, rstd, x, w, eps, stream);
  }
  const int64_t N = x.dim(0), C = x.dim(1);
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    parallel_for(N, kGrainRows, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const float r = row_rstd(x.as<T>() + n * C, C, eps);
        if (rstd) rstd.as<float>()[n] = r;
        row_scale(y.as<T>() + n * C, x.as<T>() + n * C, optional<float>(w), r, C);
      }
    });
  });
}

void residual_rmsnorm_forward(const Tensor& y, const Tensor& sum, const Tensor& rstd, const Tensor& x,
                              const Tensor& residual, const Tensor& w, float eps, Stream& stream) {
  const OpSpan span(stream, "norm", traffic({y, sum, rstd, x, residual, w}));
  if (span.plans()) return;
  check_rows(x, w, rstd, "residual_rmsnorm_forward");
  check_tensor(y, x.dtype, x.shape, "residual_rmsnorm_forward: y");
  check_tensor(sum, x.dtype, x.shape, "residual_rmsnorm_forward: sum");
  check_tensor(residual, x.dtype, x.shape, "residual_rmsnorm_forward: residual");
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda)
      return cuda::residual_rmsnorm_forward(y, sum, rstd, x, residual, w, eps, stream);
  }
  const int64_t N = x.dim(0), C = x.dim(1);
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    parallel_for(N, kGrainRows, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        T* s = sum.as<T>() + n * C;
        const T* a = x.as<T>() + n * C;
        const T* b = residual.as<T>() + n * C;
        vec::for_each(C, [&](auto load, auto store) { store(s, load(a) + load(b)); });
        const float r = row_rstd(s, C, eps);
        if (rstd) rstd.as<float>()[n] = r;
        row_scale(y.as<T>() + n * C, s, optional<float>(w), r, C);
      }
    });
  });
}

void rmsnorm_backward(const Tensor& dx, const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& w,
                      const Tensor& rstd, const Tensor& d_residual, const Tensor& scratch, Stream& stream) {
  const OpSpan span(stream, "norm", traffic({dx, dw, dw, dy, x, w, rstd, d_residual}));
  if (span.plans()) return;
  check_rows(x, w, rstd, "rmsnorm_backward");
  check_tensor(dx, x.dtype, x.shape, "rmsnorm_backward: dx");
  check_tensor(dy, x.dtype, x.shape, "rmsnorm_backward: dy");
  if (d_residual) check_tensor(d_residual, x.dtype, x.shape, "rmsnorm_backward: d_residual");
  const int64_t N = x.dim(0), C = x.dim(1);
  if (dw) check_tensor(dw, DType::f32, {C}, "rmsnorm_backward: dw");
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda)
      return cuda::rmsnorm_backward(dx, dw, dy, x, w, rstd, d_residual, scratch, stream);
  }
  RowSum dw_sum(dw, scratch);
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    parallel_ranges(N, kGrainRows, [&](int thread, int64_t begin, int64_t end) {
      float* dw_partial = dw ? dw_sum.partial(thread) : nullptr;
      const T* residual_gradient = optional<T>(d_residual);
      for (int64_t n = begin; n < end; ++n)
        row_backward(dx.as<T>() + n * C, dw_partial, dy.as<T>() + n * C, x.as<T>() + n * C,
                     optional<float>(w), residual_gradient ? residual_gradient + n * C : nullptr,
                     rstd.as<float>()[n], C);
    });
  });
  dw_sum.finish();
}

}  // namespace ingot
