// Terms of the loss of one row, or of one row within a tile of columns. Internal to the loss ops.
#pragma once

#include <algorithm>
#include <cmath>

#include "ingot/ops/elementwise/row_total.h"
#include "ingot/ops/logit_cap.h"

namespace ingot::loss_terms {

constexpr int64_t kBlock = 2048;  // columns that are summed in f32 before the sum continues in double

// Returns the sum over [0, n) of term(block, load, store), where block points to a block of x.
template <typename Term>
double blocked_total(float* x, int64_t n, Term&& term) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    float* block = x + begin;
    total += static_cast<double>(vec::row_total(
        std::min(kBlock, n - begin), [&](auto load, auto store) { return term(block, load, store); }));
  }
  return total;
}

// Returns the sum of exp(cap(x_j) - z_max). With kKeep, x_j becomes that exponential times cap'(x_j).
template <bool kKeep, typename Cap>
double exp_total(float* x, const Cap& cap, float z_max, int64_t n) {
  return blocked_total(x, n, [&](float* block, auto load, auto store) {
    const Capped c = cap(load(block));
    const vec::Vec e = vec::exp(c.z - z_max);
    if constexpr (kKeep) store(block, e * c.slope);
    return e;
  });
}

// Returns the same sum; kept (n) = scale * cap'(x_j) times these exponentials.
template <typename Cap>
double exp_total_kept(f16* kept, float scale, float* x, const Cap& cap, float z_max, int64_t n) {
  return blocked_total(x, n, [&](float* block, auto load, auto store) {
    const Capped c = cap(load(block));
    const vec::Vec e = vec::exp(c.z - z_max);
    store(kept + (block - x), e * (c.slope * scale));
    return e;
  });
}

// Returns the sum of cap(x_j).
template <typename Cap>
double capped_total(float* x, const Cap& cap, int64_t n) {
  return blocked_total(x, n, [&](float* block, auto load, auto) { return cap(load(block)).z; });
}

struct Objective {
  double loss, lse;
};

// Computes the objective of a row from its sums: `total` of the exponentials relative to z_max, and
// `z_sum` of the capped logits (read only with label smoothing).
inline Objective objective(const CrossEntropyConfig& config, double z_max, double total, double z_target,
                           double z_sum) {
  const double log_total = std::log(total), lse = z_max + log_total;
  double loss = log_total + (z_max - z_target);
  if (config.label_smoothing > 0)
    loss +=
        static_cast<double>(config.label_smoothing) * (z_target - z_sum / static_cast<double>(config.vocab));
  return {loss + static_cast<double>(config.z_loss) * lse * lse, lse};
}

// The gradient of one row with respect to logit j is grad_scale * (p_j * on_p - off - on_target) *
// cap'(x_j), where on_target applies to the target only.
struct GradientTerms {
  double on_p, off, on_target;
  GradientTerms(const CrossEntropyConfig& config, double lse)
      : on_p(1 + 2 * static_cast<double>(config.z_loss) * lse),
        off(static_cast<double>(config.label_smoothing) / static_cast<double>(config.vocab)),
        on_target(1 - static_cast<double>(config.label_smoothing)) {}
};

inline float target_gradient(const Capped& at_target, float lse, const GradientTerms& terms,
                             float grad_scale) {
  const double p = static_cast<double>(vec::exp(at_target.z - lse)[0]);
  return static_cast<float>(static_cast<double>(grad_scale) * (p * terms.on_p - terms.off - terms.on_target) *
                            static_cast<double>(at_target.slope[0]));
}

// d (n) = the gradient of columns [0, n) of a tile; d may alias x. `target` is the target's column in
// the tile; a value outside [0, n) means that the target is in another tile.
template <typename D, typename Cap>
void gradient_from_lse(D* d, const float* x, int64_t n, const Cap& cap, float lse, int64_t target,
                       const CrossEntropyConfig& config) {
  const GradientTerms terms(config, static_cast<double>(lse));
  const bool has_target = target >= 0 && target < n;
  const Capped at_target = cap(vec::splat(has_target ? x[target] : 0.0f));
  const float p_factor = static_cast<float>(terms.on_p) * config.grad_scale;
  const float off = static_cast<float>(terms.off) * config.grad_scale;
  vec::for_each(n, [&](auto load, auto store) {
    const Capped c = cap(load(x));
    store(d, (vec::exp(c.z - lse) * p_factor - off) * c.slope);
  });
  if (has_target) d[target] = D(target_gradient(at_target, lse, terms, config.grad_scale));
}

// check_config fails with a kInternal error if the config does not fit Vp columns. check_targets fails
// with a kData error that names a target outside the vocabulary and its index.
void check_config(const CrossEntropyConfig& config, int64_t Vp);
void check_targets(const Tensor& targets, int64_t V);

}  // namespace ingot::loss_terms
