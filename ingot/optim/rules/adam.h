// Adam (Kingma & Ba 2015, arXiv:1412.6980) with the weight decay in the gradient (L2), as in PyTorch:
//   g' = g * grad_scale + weight_decay * w
//   m = lerp(m, g', 1 - beta1);  v = lerp(v, g'^2, 1 - beta2)
//   w = w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
// The decay is divided by sqrt(v) together with the gradient, so weights with large gradients hardly
// decay. AdamW (optim/rules/adamw.h) corrects that. State: m, v; 8 bytes per parameter.
#pragma once

#include <array>
#include <cmath>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/shared_options.h"

namespace ingot {

struct Adam {
  static constexpr const char* kName = "adam";
  struct Options {
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;

    static constexpr auto fields() {
      return std::tuple{Field{kBeta1, &Options::beta1}, Field{kBeta2, &Options::beta2},
                        Field{kEps, &Options::eps}, Field{kWeightDecay, &Options::weight_decay}};
    }
  };
  static constexpr std::array<const char*, 2> kState{"m", "v"};

  float beta1, beta2, eps, grad_scale, weight_decay;
  float step_size;  // lr / (1 - beta1^t)
  float rms_scale;  // 1 / sqrt(1 - beta2^t)

  Adam(const Options& options, const RuleStep& step)
      : beta1(static_cast<float>(step.momentum)),
        beta2(static_cast<float>(options.beta2)),
        eps(static_cast<float>(options.eps)),
        grad_scale(step.grad_scale),
        weight_decay(static_cast<float>(step.weight_decay)),
        step_size(static_cast<float>(step.lr / (1 - std::pow(step.momentum, static_cast<double>(step.t))))),
        rms_scale(
            static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, static_cast<double>(step.t))))) {}

  constexpr void operator()(float& w, float g, float& m, float& v) const {
    const float gradient = g * grad_scale + weight_decay * w;
    m += (gradient - m) * (1 - beta1);
    v = v * beta2 + gradient * gradient * (1 - beta2);
    w -= step_size * m / (std::sqrt(v) * rms_scale + eps);
  }
};

}  // namespace ingot
