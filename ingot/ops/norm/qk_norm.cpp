#include "ingot/ops/qk_norm.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/attention/head_view.h"
#include "ingot/ops/attention/rope_row.h"
#include "ingot/ops/row_sum.h"

namespace ingot {

namespace cuda {  // qk_norm.cu
decltype(ingot::qk_norm_forward) qk_norm_forward;
decltype(ingot::qk_norm_backward) qk_norm_backward;
decltype(ingot::qk_norm_gain_forward) qk_norm_gain_forward;
decltype(ingot::qk_norm_gain_backward) qk_norm_gain_backward;
}  // namespace cuda

namespace {

using vec::Vec;

constexpr int64_t kGrainRows = 16;  // minimum number of the B*T rows per thread

template <typename T>
float mean_product(const T* a, const T* b, int64_t D) {
  Vec products{};
  vec::for_each(D, [&](auto load, auto) { products += load(a) * load(b); });
  return vec::sum(products) / static_cast<float>(D);
}

// Calls f(b, t, h, index of (b,t,h)) for every head of the rows [begin, end).
template <typename F>
void for_each_head_of(const Tensor& x, int64_t begin, int64_t end, F&& f) {
  const int64_t T = x.dim(1), H = x.dim(2);
  for (int64_t row = begin; row < end; ++row)
    for (int64_t h = 0; h < H; ++h) f(row / T, row % T, h, row * H + h);
}

// The same for all rows, in parallel.
template <typename F>
void for_each_head(const Tensor& x, F&& f) {
  parallel_for(x.dim(0) * x.dim(1), kGrainRows,
               [&](int64_t begin, int64_t end) { for_each_head_of(x, begin, end, f); });
}

void check_gains(const QkGains& gains, const Tensor& x, const char* op) {
  const Shape D{x.dim(3)};
  check_tensor(gains.q, DType::f32, D, op);
  check_tensor(gains.k, DType::f32, D, op);
  INGOT_CHECK(0 <= gains.q_heads && gains.q_heads <= x.dim(2), "{}: {} of {} heads are queries", op,
              gains.q_heads, x.dim(2));
}

// Turns g = R_t^-1(dy) of a head into dx and adds its part to d_gain. D elements each.
template <typename T>
void gain_backward_row(T* dx, float* d_gain, const float* g, const T* x, const float* gain, float rstd,
                       int64_t D) {
  Vec products{};
  vec::for_each(D, [&](auto load, auto store) {
    const Vec v = load(g) * load(x);
    store(d_gain, load(d_gain) + v * rstd);
    products += v * load(gain);
  });
  const float shift = rstd * rstd * vec::sum(products) / static_cast<float>(D);
  vec::for_each(D,
                [&](auto load, auto store) { store(dx, rstd * (load(g) * load(gain) - load(x) * shift)); });
}

}  // namespace

void qk_norm_forward(const Tensor& x, const Tensor& rstd, const Tensor& table, int64_t position_offset,
                     float eps, Stream& stream) {
  const OpSpan span(stream, "norm", traffic({x, x, rstd}));
  if (span.plans()) return;
  check_heads(x, "qk_norm_forward", "x");
  const int64_t D = x.dim(3);
  if (rstd) check_tensor(rstd, DType::f32, {x.dim(0), x.dim(1), x.dim(2)}, "qk_norm_forward: rstd");
  const RopeRows rows(table, D, x.dim(1), position_offset, "qk_norm_forward");
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda) return cuda::qk_norm_forward(x, rstd, table, position_offset, eps, stream);
  }
  float* rstd_data = rstd ? rstd.as<float>() : nullptr;
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    const HeadView<T> heads(x);
    for_each_head(x, [&](int64_t b, int64_t t, int64_t h, int64_t index) {
      T* head = heads.at(b, t, h);
      const float r = 1.0f / std::sqrt(mean_product(head, head, D) + eps);
      if (rstd_data) rstd_data[index] = r;
      rotate_row(head, rows.at(t), 1.0f, rows.rotated_dims(), D,
                 [=](auto load, int64_t first) { return load(head + first) * r; });
    });
  });
}

void qk_norm_backward(const Tensor& dy, const Tensor& y, const Tensor& rstd, const Tensor& table,
                      int64_t position_offset, Stream& stream) {
  const OpSpan span(stream, "norm", traffic({dy, dy, y, rstd}));
  if (span.plans()) return;
  check_heads(dy, "qk_norm_backward", "dy");
  check_heads(y, "qk_norm_backward", "y");
  check_tensor(y, dy.dtype, dy.shape, "qk_norm_backward: y");
  check_tensor(rstd, DType::f32, {dy.dim(0), dy.dim(1), dy.dim(2)}, "qk_norm_backward: rstd");
  const int64_t D = dy.dim(3);
  const RopeRows rows(table, D, dy.dim(1), position_offset, "qk_norm_backward");
  if constexpr (kHasCuda) {
    if (dy.device == Device::kCuda)
      return cuda::qk_norm_backward(dy, y, rstd, table, position_offset, stream);
  }
  with_dtype(dy.dtype, __func__, [&]<typename T>() {
    const HeadView<T> gradients(dy), outputs(y);
    const float* rstd_data = rstd.as<float>();
    for_each_head(dy, [&](int64_t b, int64_t t, int64_t h, int64_t index) {
      T* g = gradients.at(b, t, h);
      const T* out = outputs.at(b, t, h);
      const float mean = mean_product<T>(g, out, D), r = rstd_data[index];
      rotate_row(g, rows.at(t), -1.0f, rows.rotated_dims(), D,
                 [=](auto load, int64_t first) { return (load(g + first) - load(out + first) * mean) * r; });
    });
  });
}

void qk_norm_gain_forward(const QkNormOperands& t, Stream& stream) {
  const char* op = "qk_norm_gain_forward";
  const Tensor &x = t.x, &raw = t.raw, &rstd = t.rstd;
  const QkGains& gains = t.gains;
  const OpSpan span(stream, "norm", traffic({x, x, raw, rstd}));
  if (span.plans()) return;
  check_heads(x, op, "x");
  check_gains(gains, x, op);
  const int64_t D = x.dim(3);
  if (raw) check_tensor(raw, x.dtype, x.shape, "qk_norm_gain_forward: raw");
  if (rstd) check_tensor(rstd, DType::f32, {x.dim(0), x.dim(1), x.dim(2)}, "qk_norm_gain_forward: rstd");
  const RopeRows rows(t.table, D, x.dim(1), t.position_offset, op);
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda) return cuda::qk_norm_gain_forward(t, stream);
  }
  float* rstd_data = rstd ? rstd.as<float>() : nullptr;
  with_dtype(x.dtype, __func__, [&, eps = t.eps]<typename T>() {
    const HeadView<T> heads(x);
    for_each_head(x, [&](int64_t b, int64_t time, int64_t h, int64_t index) {
      T* head = heads.at(b, time, h);
      if (raw) std::copy_n(head, D, raw.as<T>() + index * D);
      const float* gain = (h < gains.q_heads ? gains.q : gains.k).template as<float>();
      const float r = 1.0f / std::sqrt(mean_product(head, head, D) + eps);
      if (rstd_data) rstd_data[index] = r;
      rotate_row(head, rows.at(time), 1.0f, rows.rotated_dims(), D,
                 [=](auto load, int64_t first) { return load(head + first) * r * load(gain + first); });
    });
  });
}

void qk_norm_gain_backward(const QkNormBackwardOperands& t, Stream& stream) {
  const char* op = "qk_norm_gain_backward";
  const Tensor &dy = t.dy, &raw = t.raw, &rstd = t.rstd, &scratch = t.scratch;
  const QkGains &d_gains = t.d_gains, &gains = t.gains;
  const OpSpan span(stream, "norm", traffic({dy, dy, raw, rstd}));
  if (span.plans()) return;
  check_heads(dy, op, "dy");
  check_gains(gains, dy, op);
  const bool has_sums = d_gains.q || d_gains.k;
  if (has_sums) check_gains(d_gains, dy, op);
  check_tensor(raw, dy.dtype, dy.shape, "qk_norm_gain_backward: raw");
  check_tensor(rstd, DType::f32, {dy.dim(0), dy.dim(1), dy.dim(2)}, "qk_norm_gain_backward: rstd");
  const int64_t D = dy.dim(3), parts = row_sum_parts(dy.device);
  INGOT_CHECK(scratch && scratch.dtype == DType::f32 && scratch.elements() >= 3 * parts * D,
              "{}: scratch must be f32 of at least 3 x {} x {} elements, got {} {}", op, parts, D,
              name(scratch.dtype), scratch.shape.to_string());
  const RopeRows rows(t.table, D, dy.dim(1), t.position_offset, op);
  if constexpr (kHasCuda) {
    if (dy.device == Device::kCuda) return cuda::qk_norm_gain_backward(t, stream);
  }
  const auto part = [&](int64_t i) {
    return Tensor(scratch.as<float>() + i * parts * D, DType::f32, {parts, D});
  };
  RowSum q_sum(d_gains.q, part(0)), k_sum(d_gains.k, part(1));
  with_dtype(dy.dtype, __func__, [&]<typename T>() {
    parallel_ranges(dy.dim(0) * dy.dim(1), kGrainRows, [&](int thread, int64_t begin, int64_t end) {
      const HeadView<T> gradients(dy);
      // Without gradients of the gains the terms are left in the scratch.
      const auto terms = [&](RowSum& sum, int64_t i) {
        return has_sums ? sum.partial(thread) : part(i).template as<float>() + thread * D;
      };
      float *q_partial = terms(q_sum, 0), *k_partial = terms(k_sum, 1);
      float* turned = part(2).template as<float>() + thread * D;
      for_each_head_of(dy, begin, end, [&](int64_t b, int64_t time, int64_t h, int64_t index) {
        T* g = gradients.at(b, time, h);
        const bool is_q = h < gains.q_heads;
        rotate_row(turned, rows.at(time), -1.0f, rows.rotated_dims(), D,
                   [=](auto load, int64_t first) { return load(g + first); });
        gain_backward_row(g, is_q ? q_partial : k_partial, turned, raw.as<T>() + index * D,
                          (is_q ? gains.q : gains.k).template as<float>(), rstd.as<float>()[index], D);
      });
    });
  });
  if (!has_sums) return;
  q_sum.finish();
  k_sum.finish();
}

}  // namespace ingot
