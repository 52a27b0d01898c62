// Lion (Chen et al. 2023, arXiv:2302.06675) moves along the sign of an interpolated momentum, with
// decoupled weight decay.
//   g' = g * grad_scale
//   w = w * (1 - lr * weight_decay) - lr * sign(beta1 * m + (1 - beta1) * g')
//   m = beta2 * m + (1 - beta2) * g'
// Every element moves by lr, so lr is a third to a tenth of AdamW's, and weight_decay 3 to 10 times as
// large. sign(0) is 0; a NaN stays a NaN. State: m; 4 bytes per parameter.
#pragma once

#include <array>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/shared_options.h"

namespace ingot {

struct Lion {
  static constexpr const char* kName = "lion";
  struct Options {
    double beta1 = 0.9, beta2 = 0.99, weight_decay = 0.1;

    static constexpr auto fields() {
      return std::tuple{Field{kBeta1, &Options::beta1}, Field{kBeta2, &Options::beta2},
                        Field{kWeightDecay, &Options::weight_decay}};
    }
  };
  static constexpr std::array<const char*, 1> kState{"m"};

  float lr, beta1, beta2, grad_scale;
  float decay;  // 1 - lr * weight_decay

  Lion(const Options& options, const RuleStep& step)
      : lr(static_cast<float>(step.lr)),
        beta1(static_cast<float>(step.momentum)),
        beta2(static_cast<float>(options.beta2)),
        grad_scale(step.grad_scale),
        decay(static_cast<float>(1 - step.lr * step.weight_decay)) {}

  constexpr void operator()(float& w, float g, float& m) const {
    const float gradient = g * grad_scale;
    const float mixed = m * beta1 + gradient * (1 - beta1);
    const float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed;
    w = w * decay - lr * sign;
    m = m * beta2 + gradient * (1 - beta2);
  }
};

}  // namespace ingot
