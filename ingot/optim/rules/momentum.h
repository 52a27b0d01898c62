// SGD with heavy-ball momentum (Polyak 1964), or with Nesterov's in the form of Sutskever et al. 2013
// (PMLR 28). The weight decay is in the gradient (L2):
//   g' = g * grad_scale + weight_decay * w
//   buf = momentum * buf + g'
//   w = w - lr * buf,  with Nesterov: w - lr * (g' + momentum * buf)
// State: buf; 4 bytes per parameter.
#pragma once

#include <array>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/shared_options.h"

namespace ingot {

struct Momentum {
  static constexpr const char* kName = "momentum";
  struct Options {
    double weight_decay = 0.1;
    double momentum = 0.9, momentum_start = 0;
    int64_t momentum_warmup = 0;
    bool nesterov = false;

    static constexpr auto fields() {
      return std::tuple{Field{kWeightDecay, &Options::weight_decay}, Field{kMomentum, &Options::momentum},
                        Field{kMomentumStart, &Options::momentum_start},
                        Field{kMomentumWarmup, &Options::momentum_warmup},
                        Field{kNesterov, &Options::nesterov}};
    }
  };
  static constexpr std::array<const char*, 1> kState{"momentum"};

  float lr, grad_scale, weight_decay, momentum;
  float grad_part, buffer_part;  // weights of g' and buf in the step

  Momentum(const Options& options, const RuleStep& step)
      : lr(static_cast<float>(step.lr)),
        grad_scale(step.grad_scale),
        weight_decay(static_cast<float>(step.weight_decay)),
        momentum(static_cast<float>(step.momentum)),
        grad_part(options.nesterov ? 1.0f : 0.0f),
        buffer_part(options.nesterov ? momentum : 1.0f) {}

  constexpr void operator()(float& w, float g, float& buffer) const {
    const float gradient = g * grad_scale + weight_decay * w;
    buffer = momentum * buffer + gradient;
    w -= lr * (grad_part * gradient + buffer_part * buffer);
  }
};

}  // namespace ingot
