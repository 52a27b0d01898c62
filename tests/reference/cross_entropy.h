// Capped cross-entropy in double precision, straight from the formula.
#pragma once

#include <algorithm>

#include "ingot/ops/cross_entropy.h"
#include "tests/reference/numeric.h"

namespace ingot::testing {

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

// Loss of each row of logits (N, Vp).
inline Doubles cross_entropy_reference(const Doubles& logits, const std::vector<int32_t>& targets,
                                       const CrossEntropyConfig& config) {
  const size_t N = targets.size(), Vp = logits.size() / N, V = static_cast<size_t>(config.vocab);
  Doubles losses(N);
  for (size_t n = 0; n < N; ++n) {
    if (targets[n] == kIgnoreIndex) continue;
    Doubles z(V);
    for (size_t j = 0; j < V; ++j) z[j] = cap_reference(config, logits[n * Vp + j]);
    const double z_max = *std::max_element(z.begin(), z.end());
    double total = 0;
    for (double v : z) total += std::exp(v - z_max);
    losses[n] = std::log(total) + z_max - z[static_cast<size_t>(targets[n])];
  }
  return losses;
}

}  // namespace ingot::testing
