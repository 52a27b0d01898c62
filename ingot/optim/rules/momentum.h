// SGD with heavy-ball momentum (Polyak 1964), or with Nesterov's in the form of Sutskever et al. 2013
// (PMLR 28). The weight decay is in the gradient (L2):
//   g' = g * grad_scale + weight_decay * w
//   buf = momentum * buf + g'
//   w = w - lr * buf,  with Nesterov: w - lr * (g' + momentum * buf)
// State: buf; 4 bytes per parameter.
#pragma once

#include <array>

#include "ingot/optim/rule.h"

namespace ingot {

struct Momentum {
  static constexpr std::array<const char*, 1> kState{"momentum"};

  float lr, grad_scale, weight_decay, momentum;
  float grad_part, buffer_part;  // weights of g' and buf in the step

  Momentum(const RuleParams& params, const RuleStep& step)
      : lr(static_cast<float>(step.lr)),
        grad_scale(step.grad_scale),
        weight_decay(static_cast<float>(step.weight_decay)),
        momentum(static_cast<float>(step.momentum)),
        grad_part(params.has_nesterov ? 1.0f : 0.0f),
        buffer_part(params.has_nesterov ? momentum : 1.0f) {}

  constexpr void operator()(float& w, float g, float& buffer) const {
    const float gradient = g * grad_scale + weight_decay * w;
    buffer = momentum * buffer + gradient;
    w -= lr * (grad_part * gradient + buffer_part * buffer);
  }
};

}  // namespace ingot
