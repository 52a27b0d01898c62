// AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101): Adam with decoupled weight decay.
//   g' = g * grad_scale
//   m = lerp(m, g', 1 - beta1);  v = lerp(v, g'^2, 1 - beta2)
//   w = w * (1 - lr * weight_decay) - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
// State: m, v; 8 bytes per parameter.
#pragma once

#include <array>
#include <cmath>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/adam.h"

namespace ingot {

struct AdamW {
  static constexpr const char* kName = "adamw";
  using Options = Adam::Options;
  static constexpr std::array<const char*, 2> kState{"m", "v"};

  float beta1, beta2, eps, grad_scale;
  float decay;      // 1 - lr * weight_decay
  float step_size;  // lr / (1 - beta1^t)
  float rms_scale;  // 1 / sqrt(1 - beta2^t)

  AdamW(const Options& options, const RuleStep& step)
      : beta1(static_cast<float>(step.momentum)),
        beta2(static_cast<float>(options.beta2)),
        eps(static_cast<float>(options.eps)),
        grad_scale(step.grad_scale),
        decay(static_cast<float>(1 - step.lr * step.weight_decay)),
        step_size(static_cast<float>(step.lr / (1 - std::pow(step.momentum, static_cast<double>(step.t))))),
        rms_scale(
            static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, static_cast<double>(step.t))))) {}

  constexpr void operator()(float& w, float g, float& m, float& v) const {
    const float gradient = g * grad_scale;
    m += (gradient - m) * (1 - beta1);
    v = v * beta2 + gradient * gradient * (1 - beta2);
    w = w * decay - step_size * m / (std::sqrt(v) * rms_scale + eps);
  }
};

}  // namespace ingot
