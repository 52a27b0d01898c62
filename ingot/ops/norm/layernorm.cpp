#include "ingot/ops/layernorm.h"

#include <cmath>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/elementwise/row_total.h"
#include "ingot/ops/row_sum.h"
#include "ingot/ops/simd/vec.h"

namespace ingot {

namespace cuda {  // layernorm.cu
decltype(ingot::layernorm_forward) layernorm_forward;
decltype(ingot::residual_layernorm_forward) residual_layernorm_forward;
decltype(ingot::layernorm_backward) layernorm_backward;
}  // namespace cuda

namespace {

using vec::Vec;

constexpr int64_t kGrainRows = 16;  // minimum number of rows per thread

struct Statistics {
  float mean, rstd;
};

template <typename T>
Statistics row_statistics(const T* x, int64_t C, float eps) {
  const float mean = vec::row_total(C, [&](auto load, auto) { return load(x); }) / static_cast<float>(C);
  const float squares = vec::row_total(C, [&](auto load, auto) {
    const Vec deviation = load(x) - mean;
    return deviation * deviation;
  });
  return {mean, 1.0f / std::sqrt(squares / static_cast<float>(C) + eps)};
}

template <typename T>
void row_normalise(T* y, const T* x, const float* w, const float* b, Statistics s, int64_t C) {
  vec::for_each(C, [&](auto load, auto store) {
    Vec v = (load(x) - s.mean) * s.rstd;
    if (w) v *= load(w);
    if (b) v += load(b);
    store(y, v);
  });
}

// Computes one row of backward. Adds dy * xhat into dw and dy into db unless they are null.
template <typename T>
void row_backward(T* dx, float* dw, float* db, const T* dy, const T* x, const float* w, const T* d_residual,
                  Statistics s, int64_t C) {
  Vec g_total{}, product_total{};
  vec::for_each(C, [&](auto load, auto store) {
    const Vec d = load(dy), xhat = (load(x) - s.mean) * s.rstd;
    if (dw) store(dw, load(dw) + d * xhat);
    if (db) store(db, load(db) + d);
    const Vec g = w ? d * load(w) : d;
    g_total += g;
    product_total += g * xhat;
  });
  const float g_mean = vec::sum(g_total) / static_cast<float>(C);
  const float product_mean = vec::sum(product_total) / static_cast<float>(C);
  vec::for_each(C, [&](auto load, auto store) {
    const Vec g = w ? load(dy) * load(w) : load(dy);
    const Vec xhat = (load(x) - s.mean) * s.rstd;
    const Vec d = s.rstd * (g - g_mean - xhat * product_mean);
    store(dx, d_residual ? d + load(d_residual) : d);
  });
}

template <typename T>
T* optional(const Tensor& t) {
  return t ? t.as<T>() : nullptr;
}

void check_rows(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& mean, const Tensor& rstd,
                const char* op) {
  INGOT_CHECK(x.rank() == 2 && x.is_contiguous(), "{}: x must be (N, C) and contiguous, got {}", op,
              x.shape.to_string());
  INGOT_CHECK(bool(mean) == bool(rstd), "{}: mean and rstd must both be given or both be absent", op);
  if (w) check_tensor(w, DType::f32, {x.dim(1)}, "layernorm: w");
  if (b) check_tensor(b, DType::f32, {x.dim(1)}, "layernorm: b");
  if (mean) check_tensor(mean, DType::f32, {x.dim(0)}, "layernorm: mean");
  if (rstd) check_tensor(rstd, DType::f32, {x.dim(0)}, "layernorm: rstd");
}

void keep(const Tensor& mean, const Tensor& rstd, int64_t n, Statistics s) {
  if (!rstd) return;
  mean.as<float>()[n] = s.mean;
  rstd.as<float>()[n] = s.rstd;
}

// Returns the scratch behind the first `used` elements; absent if there is none.
Tensor rest_of(const Tensor& scratch, int64_t used) {
  const int64_t left = scratch ? scratch.elements() - used : 0;
  return left > 0 ? Tensor(scratch.as<float>() + used, DType::f32, {left}) : Tensor{};
}

}  // namespace

void layernorm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                       const Tensor& w, const Tensor& b, float eps, Stream& stream) {
  const OpSpan span(stream, "norm", traffic({y, mean, rstd, x, w, b}));
  if (span.plans()) return;
  check_rows(x, w, b, mean, rstd, "layernorm_forward");
  check_tensor(y, x.dtype, x.shape, "layernorm_forward: y");
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda) return cuda::layernorm_forward(y, mean, rstd, x, w, b, eps, stream);
  }
  const int64_t N = x.dim(0), C = x.dim(1);
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    parallel_for(N, kGrainRows, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* row = x.as<T>() + n * C;
        const Statistics s = row_statistics(row, C, eps);
        keep(mean, rstd, n, s);
        row_normalise(y.as<T>() + n * C, row, optional<float>(w), optional<float>(b), s, C);
      }
    });
  });
}

void residual_layernorm_forward(const Tensor& y, const Tensor& sum, const Tensor& mean, const Tensor& rstd,
                                const Tensor& x, const Tensor& residual, const Tensor& w, const Tensor& b,
                                float eps, Stream& stream) {
  const OpSpan span(stream, "norm", traffic({y, sum, mean, rstd, x, residual, w, b}));
  if (span.plans()) return;
  check_rows(x, w, b, mean, rstd, "residual_layernorm_forward");
  check_tensor(y, x.dtype, x.shape, "residual_layernorm_forward: y");
  check_tensor(sum, x.dtype, x.shape, "residual_layernorm_forward: sum");
  check_tensor(residual, x.dtype, x.shape, "residual_layernorm_forward: residual");
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda)
      return cuda::residual_layernorm_forward(y, sum, mean, rstd, x, residual, w, b, eps, stream);
  }
  const int64_t N = x.dim(0), C = x.dim(1);
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    parallel_for(N, kGrainRows, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        T* row = sum.as<T>() + n * C;
        const T* x_row = x.as<T>() + n * C;
        const T* residual_row = residual.as<T>() + n * C;
        vec::for_each(C, [&](auto load, auto store) { store(row, load(x_row) + load(residual_row)); });
        const Statistics s = row_statistics(row, C, eps);
        keep(mean, rstd, n, s);
        row_normalise(y.as<T>() + n * C, row, optional<float>(w), optional<float>(b), s, C);
      }
    });
  });
}

void layernorm_backward(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& dy,
                        const Tensor& x, const Tensor& w, const Tensor& mean, const Tensor& rstd,
                        const Tensor& d_residual, const Tensor& scratch, Stream& stream) {
  const OpSpan span(stream, "norm", traffic({dx, dw, dw, db, db, dy, x, w, mean, rstd, d_residual}));
  if (span.plans()) return;
  check_rows(x, w, {}, mean, rstd, "layernorm_backward");
  INGOT_CHECK(rstd, "layernorm_backward: needs the mean and rstd of forward");
  check_tensor(dx, x.dtype, x.shape, "layernorm_backward: dx");
  check_tensor(dy, x.dtype, x.shape, "layernorm_backward: dy");
  if (d_residual) check_tensor(d_residual, x.dtype, x.shape, "layernorm_backward: d_residual");
  const int64_t N = x.dim(0), C = x.dim(1);
  if (dw) check_tensor(dw, DType::f32, {C}, "layernorm_backward: dw");
  if (db) check_tensor(db, DType::f32, {C}, "layernorm_backward: db");
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda)
      return cuda::layernorm_backward(dx, dw, db, dy, x, w, mean, rstd, d_residual, scratch, stream);
  }
  RowSum dw_sum(dw, scratch);
  RowSum db_sum(db, dw ? rest_of(scratch, num_threads() * C) : scratch);
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    parallel_ranges(N, kGrainRows, [&](int thread, int64_t begin, int64_t end) {
      float* dw_partial = dw ? dw_sum.partial(thread) : nullptr;
      float* db_partial = db ? db_sum.partial(thread) : nullptr;
      for (int64_t n = begin; n < end; ++n)
        row_backward(dx.as<T>() + n * C, dw_partial, db_partial, dy.as<T>() + n * C, x.as<T>() + n * C,
                     optional<float>(w), d_residual ? d_residual.as<T>() + n * C : nullptr,
                     Statistics{mean.as<float>()[n], rstd.as<float>()[n]}, C);
    });
  });
  dw_sum.finish();
  db_sum.finish();
}

}  // namespace ingot
