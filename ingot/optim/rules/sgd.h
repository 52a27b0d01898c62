// Stochastic gradient descent (Robbins & Monro 1951) with the weight decay in the gradient (L2):
//   w = w - lr * (g * grad_scale + weight_decay * w)
// It has no state.
#pragma once

#include <array>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/shared_options.h"

namespace ingot {

struct Sgd {
  static constexpr const char* kName = "sgd";
  struct Options {
    double weight_decay = 0.1;

    static constexpr auto fields() { return std::tuple{Field{kWeightDecay, &Options::weight_decay}}; }
  };
  static constexpr std::array<const char*, 0> kState{};

  float lr, grad_scale, weight_decay;

  Sgd(const Options& /*options*/, const RuleStep& step)
      : lr(static_cast<float>(step.lr)),
        grad_scale(step.grad_scale),
        weight_decay(static_cast<float>(step.weight_decay)) {}

  constexpr void operator()(float& w, float g) const { w -= lr * (g * grad_scale + weight_decay * w); }
};

}  // namespace ingot
