#include "ingot/optim/adamw.h"

#include <array>
#include <cmath>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"

namespace ingot {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements a thread takes at least

// The rule with everything that does not depend on the element worked out.
struct Rule {
  float beta1, beta2, eps, grad_scale;
  float decay;      // 1 - lr * weight_decay
  float step_size;  // lr / (1 - beta1^t)
  float rms_scale;  // 1 / sqrt(1 - beta2^t)

  void operator()(float& w, float& m, float& v, float& g) const {
    const float gradient = g * grad_scale;
    m += (gradient - m) * (1 - beta1);
    v = v * beta2 + gradient * gradient * (1 - beta2);
    w = w * decay - step_size * m / (std::sqrt(v) * rms_scale + eps);
    g = 0;
  }
};

void update_range(float* w, bf16* compute, float* m, float* v, float* g, int64_t n, const Rule& rule) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) rule(w[i], m[i], v[i], g[i]);
  if (!compute) return;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) compute[i] = bf16(w[i]);
}

}  // namespace

void AdamWConfig::validate() const {
  const auto require = [](bool holds, const char* key, const char* rule, double value) {
    if (!holds) fail(ErrorKind::kUsage, "optimizer.{} must {}, got {}", key, rule, value);
  };
  require(lr > 0, "lr", "be above 0", lr);
  require(beta1 >= 0 && beta1 < 1, "beta1", "lie in [0, 1)", beta1);
  require(beta2 >= 0 && beta2 < 1, "beta2", "lie in [0, 1)", beta2);
  require(eps > 0, "eps", "be above 0", eps);
  require(weight_decay >= 0, "weight_decay", "not be negative", weight_decay);
  require(grad_clip >= 0, "grad_clip", "not be negative (0 is off)", grad_clip);
}

void adamw_update(const Tensor& w, const Tensor& compute, const Tensor& m, const Tensor& v, const Tensor& g,
                  const AdamWConfig& config, const AdamWStep& step, Stream& stream) {
  const Span span(stream.trace, "optimizer");
  check_tensor(m, DType::f32, w.shape, "adamw_update: m");
  check_tensor(v, DType::f32, w.shape, "adamw_update: v");
  check_tensor(g, DType::f32, w.shape, "adamw_update: g");
  if (compute) check_tensor(compute, DType::bf16, w.shape, "adamw_update: compute");
  INGOT_CHECK(step.t >= 1, "adamw_update: t counts from 1, got {}", step.t);
  const double t = static_cast<double>(step.t);
  const Rule rule{.beta1 = static_cast<float>(config.beta1),
                  .beta2 = static_cast<float>(config.beta2),
                  .eps = static_cast<float>(config.eps),
                  .grad_scale = step.grad_scale,
                  .decay = static_cast<float>(1 - step.lr * step.weight_decay),
                  .step_size = static_cast<float>(step.lr / (1 - std::pow(config.beta1, t))),
                  .rms_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(config.beta2, t)))};
  bf16* cast = compute ? compute.as<bf16>() : nullptr;
  parallel_for(w.elements(), kGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kBlock = 4096;  // stays in the first cache between the update and the cast
    for (int64_t i = begin; i < end; i += kBlock)
      update_range(w.as<float>() + i, cast ? cast + i : nullptr, m.as<float>() + i, v.as<float>() + i,
                   g.as<float>() + i, std::min(kBlock, end - i), rule);
  });
}

double sum_of_squares(const Tensor& x, Stream& stream) {
  const Span span(stream.trace, "optimizer");
  INGOT_CHECK(x.dtype == DType::f32 && x.is_contiguous(), "sum_of_squares: x must be contiguous f32");
  constexpr int64_t kParts = 64, kBlock = 4096;
  std::array<double, kParts> sums{};
  const int64_t n = x.elements();
  const float* values = x.as<float>();
  parallel_for(kParts, std::max<int64_t>(1, kParts * kGrain / std::max<int64_t>(n, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t part = begin; part < end; ++part) {
                   const Range r = split_range(n, kParts, part);
                   for (int64_t i = r.begin; i < r.end; i += kBlock) {
                     float block = 0;
                     const int64_t stop = std::min(i + kBlock, r.end);
#pragma omp simd reduction(+ : block)
                     for (int64_t j = i; j < stop; ++j) block += values[j] * values[j];
                     sums[static_cast<size_t>(part)] += static_cast<double>(block);
                   }
                 }
               });
  double total = 0;
  for (double s : sums) total += s;
  return total;
}

}  // namespace ingot
