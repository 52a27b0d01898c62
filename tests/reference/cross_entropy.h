// Capped cross-entropy in double precision, computed directly from the formula.
#pragma once

#include <algorithm>

#include "ingot/ops/cross_entropy.h"
#include "tests/reference/numeric.h"

namespace ingot::test {

inline double cap_reference(const CrossEntropyConfig& config, double x) {
  switch (config.cap) {
    case LogitCap::kNone:
      return x;
    case LogitCap::kTanh:
      return config.cap_a * std::tanh(x / config.cap_a);
    case LogitCap::kSigmoid:
      return config.cap_a / (1 + std::exp(-(x + config.cap_b) / config.cap_c));
  }
  return 0;
}

// Returns the loss of each row of logits (N, Vp) by the formula of ops/cross_entropy.h.
inline Doubles cross_entropy_reference(const Doubles& logits, const std::vector<int32_t>& targets,
                                       const CrossEntropyConfig& config) {
  const size_t N = targets.size(), Vp = logits.size() / N, V = static_cast<size_t>(config.vocab);
  Doubles losses(N);
  for (size_t n = 0; n < N; ++n) {
    if (targets[n] == kIgnoreIndex) continue;
    Doubles z(V);
    for (size_t j = 0; j < V; ++j) z[j] = cap_reference(config, logits[n * Vp + j]);
    const double z_max = *std::max_element(z.begin(), z.end());
    double total = 0, z_sum = 0;
    for (double v : z) total += std::exp(v - z_max), z_sum += v;
    const double lse = std::log(total) + z_max, smoothing = config.label_smoothing;
    const double z_mean = z_sum / static_cast<double>(V);
    losses[n] = lse - (1 - smoothing) * z[static_cast<size_t>(targets[n])] - smoothing * z_mean +
                static_cast<double>(config.z_loss) * lse * lse;
  }
  return losses;
}

// Returns cap'(x) by a central difference in double; the error is at most 1e-9.
inline double cap_slope_reference(const CrossEntropyConfig& config, double x) {
  return (cap_reference(config, x + 1e-5) - cap_reference(config, x - 1e-5)) / 2e-5;
}

// Returns d loss_n / d logit_j of all rows, without grad_scale; padding columns are 0.
inline Doubles cross_entropy_gradient_reference(const Doubles& logits, const std::vector<int32_t>& targets,
                                                const CrossEntropyConfig& config) {
  const size_t N = targets.size(), Vp = logits.size() / N, V = static_cast<size_t>(config.vocab);
  Doubles d(logits.size());
  for (size_t n = 0; n < N; ++n) {
    if (targets[n] == kIgnoreIndex) continue;
    Doubles z(V);
    for (size_t j = 0; j < V; ++j) z[j] = cap_reference(config, logits[n * Vp + j]);
    const double z_max = *std::max_element(z.begin(), z.end());
    double total = 0;
    for (double v : z) total += std::exp(v - z_max);
    const double lse = std::log(total) + z_max, smoothing = config.label_smoothing;
    for (size_t j = 0; j < V; ++j) {
      const double q =
          smoothing / static_cast<double>(V) + (static_cast<int32_t>(j) == targets[n] ? 1 - smoothing : 0.0);
      d[n * Vp + j] = (std::exp(z[j] - lse) * (1 + 2 * static_cast<double>(config.z_loss) * lse) - q) *
                      cap_slope_reference(config, logits[n * Vp + j]);
    }
  }
  return d;
}

}  // namespace ingot::test
