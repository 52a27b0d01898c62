#include "ingot/optim/adamw.h"

#include <algorithm>
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

  Rule(const AdamWConfig& config, const AdamWStep& step)
      : beta1(static_cast<float>(config.beta1)),
        beta2(static_cast<float>(config.beta2)),
        eps(static_cast<float>(config.eps)),
        grad_scale(step.grad_scale),
        decay(static_cast<float>(1 - step.lr * step.weight_decay)),
        step_size(static_cast<float>(step.lr / (1 - std::pow(config.beta1, static_cast<double>(step.t))))),
        rms_scale(
            static_cast<float>(1 / std::sqrt(1 - std::pow(config.beta2, static_cast<double>(step.t))))) {}

  void operator()(float& w, float& m, float& v, float& g) const {
    const float gradient = g * grad_scale;
    m += (gradient - m) * (1 - beta1);
    v = v * beta2 + gradient * gradient * (1 - beta2);
    w = w * decay - step_size * m / (std::sqrt(v) * rms_scale + eps);
    g = 0;
  }
};

// Elements [begin, end), in pieces that stay in the first cache between the update and the cast.
void update_range(const Tensor& w, const Tensor& compute, const Tensor& m, const Tensor& v, const Tensor& g,
                  int64_t begin, int64_t end, const Rule& rule) {
  constexpr int64_t kPiece = 2048;
  for (int64_t i = begin; i < end; i += kPiece) {
    const int64_t n = std::min(kPiece, end - i);
    float *wi = w.as<float>() + i, *mi = m.as<float>() + i, *vi = v.as<float>() + i, *gi = g.as<float>() + i;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) rule(wi[j], mi[j], vi[j], gi[j]);
    if (!compute) continue;
    bf16* ci = compute.as<bf16>() + i;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) ci[j] = bf16(wi[j]);
  }
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
  const Rule rule(config, step);
  parallel_for(w.elements(), kGrain,
               [&](int64_t begin, int64_t end) { update_range(w, compute, m, v, g, begin, end, rule); });
}

namespace {

constexpr int64_t kBlockElements = 1 << 15;

double sum_of_squares(const float* x, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; i += 4096) {
    float part = 0;
    const int64_t end = std::min<int64_t>(i + 4096, n);
#pragma omp simd reduction(+ : part)
    for (int64_t j = i; j < end; ++j) part += x[j] * x[j];
    total += static_cast<double>(part);
  }
  return total;
}

size_t state_bytes(const std::vector<ParamRange>& ranges) {
  size_t total = 0;
  for (const ParamRange& r : ranges) total += 2 * (r.w.bytes() + Arena::kAlign);
  return total;
}

}  // namespace

AdamW::AdamW(const AdamWConfig& config, std::vector<ParamRange> ranges)
    : config_(config), ranges_(std::move(ranges)), arena_("optimizer", state_bytes(ranges_)) {
  for (size_t r = 0; r < ranges_.size(); ++r) {
    const ParamRange& range = ranges_[r];
    const int64_t n = range.w.elements();
    check_tensor(range.w, DType::f32, {n}, "AdamW: w");
    check_tensor(range.g, DType::f32, {n}, "AdamW: g");
    if (range.compute) check_tensor(range.compute, DType::bf16, {n}, "AdamW: compute");
    const Tensor m = arena_.alloc(DType::f32, {n}), v = arena_.alloc(DType::f32, {n});
    states_.push_back({range.name, m, v});
    for (int64_t i = 0; i < n; i += kBlockElements)
      blocks_.push_back({r, i, std::min(i + kBlockElements, n)});
  }
  squares_.resize(blocks_.size());
}

double AdamW::grad_norm(Stream& stream) {
  const Span span(stream.trace, "optimizer");
  parallel_for(std::ssize(blocks_), 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const Block& block = blocks_[static_cast<size_t>(b)];
      squares_[static_cast<size_t>(b)] =
          sum_of_squares(ranges_[block.range].g.as<float>() + block.begin, block.end - block.begin);
    }
  });
  double total = 0;
  for (double s : squares_) total += s;
  return std::sqrt(total);
}

void AdamW::step(double lr, float grad_scale, Stream& stream) {
  const Span span(stream.trace, "optimizer");
  ++t_;
  const AdamWStep step{.lr = lr, .weight_decay = 0, .t = t_, .grad_scale = grad_scale};
  AdamWStep decaying = step;
  decaying.weight_decay = config_.weight_decay;
  const Rule plain(config_, step), decayed(config_, decaying);
  parallel_for(std::ssize(blocks_), 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const Block& block = blocks_[static_cast<size_t>(b)];
      const ParamRange& range = ranges_[block.range];
      const State& state = states_[block.range];
      update_range(range.w, range.compute, state.m, state.v, range.g, block.begin, block.end,
                   range.has_decay ? decayed : plain);
    }
  });
}

}  // namespace ingot
