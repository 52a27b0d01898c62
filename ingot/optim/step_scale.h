// The factors that a step applies to its gradients; the host and optim/cuda_step_check.cu share them.
#pragma once

#include <cstdint>

namespace ingot {

// Turns the gradient of the sum of the losses / expected_tokens into that of their mean over the tokens that
// were counted.
constexpr double grad_correction(double expected_tokens, int64_t counted) {
  return expected_tokens / static_cast<double>(counted > 1 ? counted : 1);
}

// The factor of clipping by the global norm (Pascanu et al. 2013); 1 if the limit is 0.
constexpr double clip_factor(double norm, double limit) {
  const double allowed = limit / (norm + 1e-6);
  return limit > 0 && allowed < 1 ? allowed : 1.0;
}

}  // namespace ingot
