#include "ingot/ops/qk_norm.h"

#include <cmath>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/attention/head_view.h"
#include "ingot/ops/attention/rope_row.h"

namespace ingot {

namespace cuda {  // qk_norm.cu
decltype(ingot::qk_norm_forward) qk_norm_forward;
decltype(ingot::qk_norm_backward) qk_norm_backward;
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

// Calls f(b, t, h, index of (b,t,h)) for every head, in parallel.
template <typename F>
void for_each_head(const Tensor& x, F&& f) {
  const int64_t rows = x.dim(0) * x.dim(1), T = x.dim(1), H = x.dim(2);
  parallel_for(rows, kGrainRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t h = 0; h < H; ++h) f(row / T, row % T, h, row * H + h);
  });
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
  INGOT_DISPATCH(x.dtype, T, {
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
  INGOT_DISPATCH(dy.dtype, T, {
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

}  // namespace ingot
