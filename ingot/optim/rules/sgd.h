// Stochastic gradient descent (Robbins & Monro 1951) with the weight decay in the gradient (L2):
//   w = w - lr * (g * grad_scale + weight_decay * w)
// It has no state.
#pragma once

#include <array>

#include "ingot/optim/rule.h"

namespace ingot {

struct Sgd {
  static constexpr std::array<const char*, 0> kState{};

  float lr, grad_scale, weight_decay;

  Sgd(const RuleParams& /*params*/, const RuleStep& step)
      : lr(static_cast<float>(step.lr)),
        grad_scale(step.grad_scale),
        weight_decay(static_cast<float>(step.weight_decay)) {}

  constexpr void operator()(float& w, float g) const { w -= lr * (g * grad_scale + weight_decay * w); }
};

}  // namespace ingot
