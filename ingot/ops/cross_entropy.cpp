#include "ingot/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/parallel.h"
#include "ingot/ops/dispatch.h"
#include "ingot/ops/row_total.h"
#include "ingot/ops/vec.h"

namespace ingot {
namespace {

using vec::Vec;

constexpr int64_t kBlock =
    2048;  // columns whose exponentials are summed in f32, before the sum goes on in double

struct Capped {
  Vec z, slope;  // cap(x), cap'(x)
};

struct NoCap {
  Capped operator()(Vec x) const { return {x, vec::splat(1.0f)}; }
};

// z = gain * sigmoid((x + offset) / width) + shift: both caps, as a tanh(x / a) = 2a sigmoid(2x / a) - a.
struct SigmoidCap {
  float gain, offset, width, shift;
  Capped operator()(Vec x) const {
    const Vec s = 1.0f / (1.0f + vec::exp(x * (-1 / width) - offset / width));
    return {gain * s + shift, (gain / width) * (s - s * s)};
  }
};

// Calls f with the config's cap.
template <typename F>
void with_cap(const CrossEntropyConfig& config, F&& f) {
  const float a = config.cap_a;
  switch (config.cap) {
    case LogitCap::kNone:
      return f(NoCap{});
    case LogitCap::kTanh:
      return f(SigmoidCap{2 * a, 0, a / 2, -a});
    case LogitCap::kSigmoid:
      return f(SigmoidCap{a, config.cap_b, config.cap_c, 0});
  }
}

// Sum of exp(cap(x_j) - z_max); with kKeep, x_j becomes that exponential times cap'(x_j), which is the
// gradient but for a factor that all columns share.
template <bool kKeep, typename Cap>
double exp_total(float* x, Cap cap, float z_max, int64_t V) {
  double total = 0;
  for (int64_t begin = 0; begin < V; begin += kBlock) {
    float* block = x + begin;
    total += vec::row_total(std::min(kBlock, V - begin), [&](auto load, auto store) {
      const Capped c = cap(load(block));
      const Vec e = vec::exp(c.z - z_max);
      if constexpr (kKeep) store(block, e * c.slope);
      return e;
    });
  }
  return total;
}

bool is_top(const float* x, float x_max, int32_t target) {
  return x[target] == x_max && std::find(x, x + target, x_max) == x + target;
}

struct RowResult {
  float loss;
  bool is_correct;
};

// One row with a target. D is the dtype of the gradient; d is null where it is not wanted.
template <typename D, typename Cap>
RowResult row_loss(D* d, float* x, int32_t target, const Cap& cap, const CrossEntropyConfig& config,
                   int64_t Vp) {
  const int64_t V = config.vocab;
  const float x_max = vec::row_max(x, V);  // caps are monotone: the largest x is the largest z
  const float z_max = cap(vec::splat(x_max)).z[0];
  const Capped at_target = cap(vec::splat(x[target]));
  const float z = at_target.z[0];
  const bool is_correct = is_top(x, x_max, target);
  const double total = d ? exp_total<true>(x, cap, z_max, V) : exp_total<false>(x, cap, z_max, V);
  if (d) {
    const float factor = static_cast<float>(config.grad_scale / total);
    vec::for_each(V, [&](auto load, auto store) { store(d, load(x) * factor); });
    const double p = static_cast<double>(vec::exp(at_target.z - z_max)[0]) / total;
    d[target] = D(static_cast<float>(config.grad_scale * (p - 1) * at_target.slope[0]));
    std::fill(d + V, d + Vp, D(0.0f));
  }
  const double loss = std::log(total) + (static_cast<double>(z_max) - z);
  return {static_cast<float>(loss), is_correct};
}

void check_targets(const Tensor& targets, int64_t V) {
  const int32_t* values = targets.as<int32_t>();
  for (int64_t n = 0; n < targets.elements(); ++n)
    if ((values[n] < 0 || values[n] >= V) && values[n] != kIgnoreIndex) [[unlikely]]
      fail(
          ErrorKind::kData,
          "cross_entropy: target {} at index {} is outside the vocabulary of {} (ignored rows are marked {})",
          values[n], n, V, kIgnoreIndex);
}

void check_config(const CrossEntropyConfig& config, int64_t Vp) {
  INGOT_CHECK(config.vocab >= 1 && config.vocab <= Vp,
              "cross_entropy: vocab must be in [1, {}], the columns of the logits, got {}", Vp, config.vocab);
  INGOT_CHECK(config.cap == LogitCap::kNone || config.cap_a > 0,
              "cross_entropy: cap_a must be positive, got {}", config.cap_a);
  INGOT_CHECK(config.cap != LogitCap::kSigmoid || config.cap_c > 0,
              "cross_entropy: cap_c must be positive, got {}", config.cap_c);
}

template <typename D, typename Cap>
void rows_loss(const Tensor& losses, const Tensor& is_correct, const Tensor& d_logits, const Tensor& logits,
               const Tensor& targets, const CrossEntropyConfig& config, const Cap& cap) {
  const int64_t N = logits.dim(0), Vp = logits.dim(1);
  const int32_t* target = targets.as<int32_t>();
  const int64_t grain_rows = std::max<int64_t>(1, 4096 / Vp);
  parallel_for(N, grain_rows, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      D* d = d_logits ? d_logits.as<D>() + n * Vp : nullptr;
      RowResult row{0, false};
      if (target[n] != kIgnoreIndex)
        row = row_loss(d, logits.as<float>() + n * Vp, target[n], cap, config, Vp);
      else if (d)
        std::fill(d, d + Vp, D(0.0f));
      losses.as<float>()[n] = row.loss;
      if (is_correct) is_correct.as<uint8_t>()[n] = row.is_correct;
    }
  });
}

}  // namespace

void cross_entropy(const Tensor& losses, const Tensor& is_correct, const Tensor& d_logits,
                   const Tensor& logits, const Tensor& targets, const CrossEntropyConfig& config,
                   Stream& stream) {
  const Span span(stream.trace, "loss");
  INGOT_CHECK(logits.rank() == 2 && logits.is_contiguous(),
              "cross_entropy: logits must be (N, Vp) and contiguous, got {}", logits.shape.to_string());
  const int64_t N = logits.dim(0), Vp = logits.dim(1);
  check_config(config, Vp);
  check_tensor(logits, DType::f32, {N, Vp}, "cross_entropy: logits");
  check_tensor(targets, DType::i32, {N}, "cross_entropy: targets");
  check_tensor(losses, DType::f32, {N}, "cross_entropy: losses");
  if (is_correct) check_tensor(is_correct, DType::u8, {N}, "cross_entropy: is_correct");
  if (d_logits) check_tensor(d_logits, d_logits.dtype, {N, Vp}, "cross_entropy: d_logits");
  check_targets(targets, config.vocab);
  INGOT_DISPATCH(d_logits ? d_logits.dtype : DType::f32, D, {
    with_cap(config,
             [&](auto cap) { rows_loss<D>(losses, is_correct, d_logits, logits, targets, config, cap); });
  });
}

}  // namespace ingot
