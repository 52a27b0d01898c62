#include "ingot/ops/cross_entropy_bf16.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/loss/cross_entropy_terms.h"

namespace ingot {

namespace cuda {  // cross_entropy_bf16.cu
decltype(ingot::round_to_bf16) round_to_bf16;
// Leaves the losses of rows without a target unchanged.
void cross_entropy_in_bf16(const Tensor& losses, const Tensor& d_logits, const Tensor& logits,
                           const Tensor& targets, const CrossEntropyConfig& config, Stream& stream);
}  // namespace cuda

namespace {

float rounded(float x) { return static_cast<float>(bf16(x)); }

vec::Vec rounded(vec::Vec x) {
  bf16 lanes[vec::kLanes];
  vec::store(lanes, x);
  return vec::load(lanes);
}

// Computes one row that has a target; d is null if no gradient is wanted.
float row_loss(bf16* d, float* x, int64_t target, const CrossEntropyConfig& config, int64_t Vp) {
  const int64_t V = config.vocab;
  const float x_max = vec::row_max(x, V), x_target = x[target];
  vec::for_each(V, [&](auto load, auto store) { store(x, rounded(vec::exp(rounded(load(x) - x_max)))); });
  float sum = 0;
  for (int64_t j = 0; j < V; ++j) sum = rounded(sum + x[j]);
  const float lse = rounded(x_max + rounded(std::log(sum)));
  if (d) {
    vec::for_each(V, [&](auto load, auto store) { store(d, rounded(load(x) / sum) * config.grad_scale); });
    d[target] = bf16(rounded(rounded(x[target] / sum) - 1.0f) * config.grad_scale);
    std::fill(d + V, d + Vp, bf16(0.0f));
  }
  return rounded(lse - x_target);
}

}  // namespace

void round_to_bf16(const Tensor& x, Stream& stream) {
  const OpSpan span(stream, "loss", traffic({x, x}));
  if (span.plans()) return;
  check_tensor(x, DType::f32, x.shape, "round_to_bf16: x");
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda) return cuda::round_to_bf16(x, stream);
  }
  parallel_for(x.elements(), kGrain, [&](int64_t begin, int64_t end) {
    float* part = x.as<float>() + begin;
    vec::for_each(end - begin, [&](auto load, auto store) { store(part, rounded(load(part))); });
  });
}

void cross_entropy_in_bf16(const Tensor& losses, const Tensor& is_correct, const Tensor& d_logits,
                           const Tensor& logits, const Tensor& targets, const CrossEntropyConfig& config,
                           Stream& stream) {
  const OpSpan span(stream, "loss", traffic({losses, d_logits, logits, targets}));
  INGOT_CHECK(config.cap == LogitCap::kNone && config.z_loss == 0 && config.label_smoothing == 0,
              "cross_entropy_in_bf16: knows no cap, z-loss or label smoothing");
  round_to_bf16(logits, stream);
  const int64_t N = logits.dim(0), Vp = logits.dim(1);
  // The f32 op checks shapes and targets and computes is_correct.
  cross_entropy(losses, is_correct, {}, logits, targets, config, stream);
  if (d_logits) check_tensor(d_logits, DType::bf16, {N, Vp}, "cross_entropy_in_bf16: d_logits");
  if constexpr (kHasCuda) {
    if (logits.device == Device::kCuda)
      return cuda::cross_entropy_in_bf16(losses, d_logits, logits, targets, config, stream);
  }
  const int32_t* target = targets.as<int32_t>();
  parallel_for(N, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      bf16* d = d_logits ? d_logits.as<bf16>() + n * Vp : nullptr;
      if (target[n] != kIgnoreIndex)
        losses.as<float>()[n] = row_loss(d, logits.as<float>() + n * Vp, target[n], config, Vp);
      else if (d)
        std::fill(d, d + Vp, bf16(0.0f));
    }
  });
}

}  // namespace ingot
