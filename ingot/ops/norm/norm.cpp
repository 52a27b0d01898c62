#include "ingot/ops/norm.h"

#include <cmath>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/elementwise/row_total.h"
#include "ingot/ops/row_sum.h"
#include "ingot/ops/simd/vec.h"

namespace ingot {

namespace cuda {  // norm.cu
decltype(ingot::layernorm_forward) layernorm_forward;
decltype(ingot::rmsnorm_forward) rmsnorm_forward;
decltype(ingot::layernorm_backward) layernorm_backward;
decltype(ingot::rmsnorm_backward) rmsnorm_backward;
}  // namespace cuda

namespace {

using vec::Vec;

constexpr int64_t kGrainRows = 16;  // minimum number of rows per thread

struct Statistics {
  float mean = 0, rstd = 0;
};

// A row of a backward pass. dw and db are sums over the rows of a thread. dw, db, w and d_residual may be
// null.
template <typename T>
struct BackwardRow {
  T* dx;
  float *dw, *db;
  const T *dy, *x;
  const float* w;
  const T* d_residual;
};

struct LayerRows {
  static constexpr bool kCentred = true;
  static constexpr const char *kWeight = "layernorm: w", *kBias = "layernorm: b";

  template <typename T>
  static Statistics statistics(const T* x, int64_t C, float eps) {
    const float mean = vec::row_total(C, [&](auto load, auto) { return load(x); }) / static_cast<float>(C);
    const float squares = vec::row_total(C, [&](auto load, auto) {
      const Vec deviation = load(x) - mean;
      return deviation * deviation;
    });
    return {mean, 1.0f / std::sqrt(squares / static_cast<float>(C) + eps)};
  }

  template <typename T>
  static void normalise(T* y, const T* x, const float* w, const float* b, Statistics s, int64_t C) {
    vec::for_each(C, [&](auto load, auto store) {
      Vec v = (load(x) - s.mean) * s.rstd;
      if (w) v *= load(w);
      if (b) v += load(b);
      store(y, v);
    });
  }

  template <typename T>
  static void backward(const BackwardRow<T>& r, Statistics s, int64_t C) {
    Vec g_total{}, product_total{};
    vec::for_each(C, [&](auto load, auto store) {
      const Vec d = load(r.dy), xhat = (load(r.x) - s.mean) * s.rstd;
      if (r.dw) store(r.dw, load(r.dw) + d * xhat);
      if (r.db) store(r.db, load(r.db) + d);
      const Vec g = r.w ? d * load(r.w) : d;
      g_total += g;
      product_total += g * xhat;
    });
    const float g_mean = vec::sum(g_total) / static_cast<float>(C);
    const float product_mean = vec::sum(product_total) / static_cast<float>(C);
    vec::for_each(C, [&](auto load, auto store) {
      const Vec g = r.w ? load(r.dy) * load(r.w) : load(r.dy);
      const Vec xhat = (load(r.x) - s.mean) * s.rstd;
      const Vec d = s.rstd * (g - g_mean - xhat * product_mean);
      store(r.dx, r.d_residual ? d + load(r.d_residual) : d);
    });
  }
};

struct RmsRows {
  static constexpr bool kCentred = false;
  static constexpr const char *kWeight = "rmsnorm: w", *kBias = "rmsnorm: b";

  template <typename T>
  static Statistics statistics(const T* x, int64_t C, float eps) {
    Vec squares{};
    vec::for_each(C, [&](auto load, auto) {
      const Vec v = load(x);
      squares += v * v;
    });
    return {0, 1.0f / std::sqrt(vec::sum(squares) / static_cast<float>(C) + eps)};
  }

  template <typename T>
  static void normalise(T* y, const T* x, const float* w, const float* /*b*/, Statistics s, int64_t C) {
    vec::for_each(C, [&](auto load, auto store) {
      const Vec normed = load(x) * s.rstd;
      store(y, w ? normed * load(w) : normed);
    });
  }

  template <typename T>
  static void backward(const BackwardRow<T>& r, Statistics s, int64_t C) {
    Vec products{};
    vec::for_each(C, [&](auto load, auto store) {
      const Vec g = load(r.dy), v = load(r.x);
      if (r.dw) store(r.dw, load(r.dw) + g * v * s.rstd);
      products += (r.w ? g * load(r.w) : g) * v;
    });
    const float shift = s.rstd * s.rstd * vec::sum(products) / static_cast<float>(C);
    vec::for_each(C, [&](auto load, auto store) {
      const Vec g = r.w ? load(r.dy) * load(r.w) : load(r.dy);
      const Vec d = s.rstd * (g - load(r.x) * shift);
      store(r.dx, r.d_residual ? d + load(r.d_residual) : d);
    });
  }
};

template <typename T>
T* optional(const Tensor& t) {
  return t ? t.as<T>() : nullptr;
}

// Checks what forward and backward have in common.
template <typename Rows, typename Operands>
void check_rows(const Operands& t, const char* op) {
  INGOT_CHECK(t.x.rank() == 2 && t.x.is_contiguous(), "{}: x must be (N, C) and contiguous, got {}", op,
              t.x.shape.to_string());
  INGOT_CHECK(!Rows::kCentred || bool(t.mean) == bool(t.rstd),
              "{}: mean and rstd must both be given or both be absent", op);
  INGOT_CHECK(Rows::kCentred || !t.mean, "{}: has no mean", op);
  if (t.w) check_tensor(t.w, DType::f32, {t.x.dim(1)}, Rows::kWeight);
  if (t.mean) check_tensor(t.mean, DType::f32, {t.x.dim(0)}, "norm: mean");
  if (t.rstd) check_tensor(t.rstd, DType::f32, {t.x.dim(0)}, "norm: rstd");
}

template <typename Rows>
void forward(const NormOperands& t, const char* op, Stream& stream) {
  const OpSpan span(stream, "norm", traffic({t.y, t.sum, t.mean, t.rstd, t.x, t.residual, t.w, t.b}));
  if (span.plans()) return;
  check_rows<Rows>(t, op);
  const int64_t N = t.x.dim(0), C = t.x.dim(1);
  INGOT_CHECK(Rows::kCentred || !t.b, "{}: has no b", op);
  if (t.b) check_tensor(t.b, DType::f32, {C}, Rows::kBias);
  check_tensor(t.y, t.x.dtype, t.x.shape, "norm: y");
  if (t.residual) {
    check_tensor(t.residual, t.x.dtype, t.x.shape, "norm: residual");
    check_tensor(t.sum, t.x.dtype, t.x.shape, "norm: sum");
  }
  if constexpr (kHasCuda) {
    if (t.x.device == Device::kCuda)
      return Rows::kCentred ? cuda::layernorm_forward(t, stream) : cuda::rmsnorm_forward(t, stream);
  }
  with_dtype(t.x.dtype, op, [&]<typename T>() {
    parallel_for(N, kGrainRows, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* row = t.x.as<T>() + n * C;
        if (t.residual) {
          const T *x = row, *residual = t.residual.as<T>() + n * C;
          T* sum = t.sum.as<T>() + n * C;
          vec::for_each(C, [&](auto load, auto store) { store(sum, load(x) + load(residual)); });
          row = sum;
        }
        const Statistics s = Rows::statistics(row, C, t.eps);
        if (t.mean) t.mean.as<float>()[n] = s.mean;
        if (t.rstd) t.rstd.as<float>()[n] = s.rstd;
        Rows::normalise(t.y.as<T>() + n * C, row, optional<float>(t.w), optional<float>(t.b), s, C);
      }
    });
  });
}

// Returns the scratch behind the first `used` elements; absent if there is none.
Tensor rest_of(const Tensor& scratch, int64_t used) {
  const int64_t left = scratch ? scratch.elements() - used : 0;
  return left > 0 ? Tensor(scratch.as<float>() + used, DType::f32, {left}) : Tensor{};
}

template <typename Rows>
void backward(const NormBackwardOperands& t, const char* op, Stream& stream) {
  const OpSpan span(stream, "norm",
                    traffic({t.dx, t.dw, t.dw, t.db, t.db, t.dy, t.x, t.w, t.mean, t.rstd, t.d_residual}));
  if (span.plans()) return;
  check_rows<Rows>(t, op);
  INGOT_CHECK(t.rstd, "{}: needs the statistics of forward", op);
  INGOT_CHECK(Rows::kCentred || !t.db, "{}: has no db", op);
  check_tensor(t.dx, t.x.dtype, t.x.shape, "norm: dx");
  check_tensor(t.dy, t.x.dtype, t.x.shape, "norm: dy");
  if (t.d_residual) check_tensor(t.d_residual, t.x.dtype, t.x.shape, "norm: d_residual");
  const int64_t N = t.x.dim(0), C = t.x.dim(1);
  if (t.dw) check_tensor(t.dw, DType::f32, {C}, "norm: dw");
  if (t.db) check_tensor(t.db, DType::f32, {C}, "norm: db");
  if constexpr (kHasCuda) {
    if (t.x.device == Device::kCuda)
      return Rows::kCentred ? cuda::layernorm_backward(t, stream) : cuda::rmsnorm_backward(t, stream);
  }
  RowSum dw_sum(t.dw, t.scratch);
  RowSum db_sum(t.db, t.dw ? rest_of(t.scratch, num_threads() * C) : t.scratch);
  with_dtype(t.x.dtype, op, [&]<typename T>() {
    parallel_ranges(N, kGrainRows, [&](int thread, int64_t begin, int64_t end) {
      float* dw = t.dw ? dw_sum.partial(thread) : nullptr;
      float* db = t.db ? db_sum.partial(thread) : nullptr;
      for (int64_t n = begin; n < end; ++n)
        Rows::backward(BackwardRow<T>{.dx = t.dx.as<T>() + n * C,
                                      .dw = dw,
                                      .db = db,
                                      .dy = t.dy.as<T>() + n * C,
                                      .x = t.x.as<T>() + n * C,
                                      .w = optional<float>(t.w),
                                      .d_residual = t.d_residual ? t.d_residual.as<T>() + n * C : nullptr},
                       Statistics{t.mean ? t.mean.as<float>()[n] : 0, t.rstd.as<float>()[n]}, C);
    });
  });
  dw_sum.finish();
  db_sum.finish();
}

}  // namespace

void layernorm_forward(const NormOperands& t, Stream& stream) {
  forward<LayerRows>(t, "layernorm_forward", stream);
}
void rmsnorm_forward(const NormOperands& t, Stream& stream) {
  forward<RmsRows>(t, "rmsnorm_forward", stream);
}
void layernorm_backward(const NormBackwardOperands& t, Stream& stream) {
  backward<LayerRows>(t, "layernorm_backward", stream);
}
void rmsnorm_backward(const NormBackwardOperands& t, Stream& stream) {
  backward<RmsRows>(t, "rmsnorm_backward", stream);
}

}  // namespace ingot
