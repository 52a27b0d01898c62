// Adan (Xie et al. 2022, arXiv:2208.06677, algorithm 1 without restarts): Adam's moments of a gradient that
// looks ahead, for which the difference of two successive gradients stands. The decay is decoupled, in
// proximal form. The betas are decays, as in Adam: the paper's are 1 - beta1, 1 - beta2 and 1 - beta3.
//   g' = g * grad_scale;  d = g' - g' of the step before
//   m = lerp(m, g', 1 - beta1);  v = lerp(v, d, 1 - beta2);  n = lerp(n, (g' + beta2 * d)^2, 1 - beta3)
//   w = (w - lr * (m + beta2 * v) / sqrt(n + eps)) / (1 + lr * weight_decay)
// The averages start from their first values: m and n at step 1, where d is 0, and v at step 2. eps is in the
// root, so its default is the square of the 1e-8 that the authors' program adds to the root.
// State: m, v, n and previous, which is g' of the step before; 16 bytes per parameter.
#pragma once

#include <array>
#include <cmath>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/shared_options.h"

namespace ingot {

struct Adan {
  static constexpr const char* kName = "adan";
  struct Options {
    double beta1 = 0.98, beta2 = 0.92, beta3 = 0.99, eps = 1e-16, weight_decay = 0.02;

    static constexpr auto fields() {
      return std::tuple{
          Field{kBeta1, &Options::beta1}, Field{kBeta2, &Options::beta2},
          Field{{"beta3", "decay of adan's second moment; its beta2 is that of the gradients' difference",
                 Limit::kFraction},
                &Options::beta3},
          Field{kEps, &Options::eps}, Field{kWeightDecay, &Options::weight_decay}};
    }
  };
  static constexpr std::array<const char*, 4> kState{"m", "v", "n", "previous"};

  float lr, beta2, eps, grad_scale;
  float of_difference;        // 0 at the first step
  float new_m, new_v, new_n;  // weights of the new values in the averages
  float shrink;               // 1 / (1 + lr * weight_decay)

  Adan(const Options& options, const RuleStep& step)
      : lr(static_cast<float>(step.lr)),
        beta2(static_cast<float>(options.beta2)),
        eps(static_cast<float>(options.eps)),
        grad_scale(step.grad_scale),
        of_difference(step.t > 1 ? 1.0f : 0.0f),
        new_m(step.t > 1 ? static_cast<float>(1 - step.momentum) : 1.0f),
        new_v(step.t > 2 ? static_cast<float>(1 - options.beta2) : 1.0f),
        new_n(step.t > 1 ? static_cast<float>(1 - options.beta3) : 1.0f),
        shrink(static_cast<float>(1 / (1 + step.lr * step.weight_decay))) {}

  constexpr void operator()(float& w, float g, float& m, float& v, float& n, float& previous) const {
    const float gradient = g * grad_scale, difference = (gradient - previous) * of_difference;
    const float ahead = gradient + beta2 * difference;
    m += (gradient - m) * new_m;
    v += (difference - v) * new_v;
    n += (ahead * ahead - n) * new_n;
    w = (w - lr * (m + beta2 * v) / std::sqrt(n + eps)) * shrink;
    previous = gradient;
  }
};

}  // namespace ingot
