#include "ingot/ops/cross_entropy.h"

#include <algorithm>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/loss/cross_entropy_terms.h"

namespace ingot {

namespace cuda {  // cross_entropy.cu
decltype(ingot::cross_entropy) cross_entropy;
}  // namespace cuda

namespace {

bool is_top(const float* x, float x_max, int32_t target) {
  return x[target] == x_max && std::find(x, x + target, x_max) == x + target;
}

struct RowResult {
  float loss;
  bool is_correct;
};

// Computes one row that has a target. D is the dtype of the gradient; d is null if no gradient is wanted.
template <typename D, typename Cap>
RowResult row_loss(D* d, float* x, int32_t target, const Cap& cap, const CrossEntropyConfig& config,
                   int64_t Vp) {
  const int64_t V = config.vocab;
  const float x_max = vec::row_max(x, V);  // caps are monotone: the largest x is the largest z
  const float z_max = cap(vec::splat(x_max)).z[0];
  const Capped at_target = cap(vec::splat(x[target]));
  const bool is_correct = is_top(x, x_max, target), is_smoothed = config.label_smoothing > 0;
  const double z_sum = is_smoothed ? loss_terms::capped_total(x, cap, V) : 0;
  const double total = d && !is_smoothed ? loss_terms::exp_total<true>(x, cap, z_max, V)
                                         : loss_terms::exp_total<false>(x, cap, z_max, V);
  const loss_terms::Objective result = loss_terms::objective(config, static_cast<double>(z_max), total,
                                                             static_cast<double>(at_target.z[0]), z_sum);
  if (d && is_smoothed) {
    loss_terms::gradient_from_lse(d, x, V, cap, static_cast<float>(result.lse), target, config);
  } else if (d) {
    const loss_terms::GradientTerms terms(config, result.lse);
    const double scale = static_cast<double>(config.grad_scale);
    const float factor = static_cast<float>(scale * terms.on_p / total);
    vec::for_each(V, [&](auto load, auto store) { store(d, load(x) * factor); });
    const double p = static_cast<double>(vec::exp(at_target.z - z_max)[0]) / total;
    d[target] = D(static_cast<float>(scale * (p * terms.on_p - 1) * static_cast<double>(at_target.slope[0])));
  }
  if (d) std::fill(d + V, d + Vp, D(0.0f));
  return {static_cast<float>(result.loss), is_correct};
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

namespace loss_terms {

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

}  // namespace loss_terms

float max_slope(const CrossEntropyConfig& config) {
  return config.cap == LogitCap::kSigmoid ? config.cap_a / (4 * config.cap_c) : 1.0f;
}

void cross_entropy(const Tensor& losses, const Tensor& is_correct, const Tensor& d_logits,
                   const Tensor& logits, const Tensor& targets, const CrossEntropyConfig& config,
                   Stream& stream) {
  const OpSpan span(stream, "loss", traffic({losses, is_correct, d_logits, logits, targets}));
  if (span.plans()) return;
  INGOT_CHECK(logits.rank() == 2 && logits.is_contiguous(),
              "cross_entropy: logits must be (N, Vp) and contiguous, got {}", logits.shape.to_string());
  const int64_t N = logits.dim(0), Vp = logits.dim(1);
  loss_terms::check_config(config, Vp);
  const bool is_half = logits.dtype == DType::bf16 && logits.device == Device::kCuda;
  check_tensor(logits, is_half ? DType::bf16 : DType::f32, {N, Vp}, "cross_entropy: logits");
  check_tensor(targets, DType::i32, {N}, "cross_entropy: targets");
  check_tensor(losses, DType::f32, {N}, "cross_entropy: losses");
  if (is_correct) check_tensor(is_correct, DType::u8, {N}, "cross_entropy: is_correct");
  if (d_logits)
    check_tensor(d_logits, is_half ? DType::bf16 : d_logits.dtype, {N, Vp}, "cross_entropy: d_logits");
  if constexpr (kHasCuda) {
    if (logits.device == Device::kCuda)
      return cuda::cross_entropy(losses, is_correct, d_logits, logits, targets, config, stream);
  }
  loss_terms::check_targets(targets, config.vocab);
  with_dtype(d_logits ? d_logits.dtype : DType::f32, __func__, [&]<typename D>() {
    with_cap(config,
             [&](auto cap) { rows_loss<D>(losses, is_correct, d_logits, logits, targets, config, cap); });
  });
}

}  // namespace ingot
