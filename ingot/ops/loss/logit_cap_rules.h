// The logit caps as elementwise rules over a Math (ops/elementwise/activation_rules.h). A rule returns
// value and slope, and all devices share it. Internal to the loss ops.
#pragma once

#include "ingot/ops/cross_entropy.h"

namespace ingot {

template <typename Math>
struct CapValue {
  typename Math::V z, slope;  // cap(x), cap'(x)
};

template <typename Math>
struct NoCapRule {
  using V = typename Math::V;
  constexpr CapValue<Math> operator()(V x) const { return {x, Math::constant(1.0f)}; }
};

// z = gain * sigmoid((x + offset) / width) + shift. Both caps have this form, since a tanh(x / a) = 2a
// sigmoid(2x / a) - a.
template <typename Math>
struct SigmoidCapRule {
  using V = typename Math::V;
  float gain, offset, width, shift;
  constexpr CapValue<Math> operator()(V x) const {
    const V s = 1.0f / (1.0f + Math::exp(x * (-1 / width) - offset / width));
    return {gain * s + shift, (gain / width) * (s - s * s)};
  }
};

// Calls f with the cap that the config selects.
template <typename Math, typename F>
void with_cap_rule(const CrossEntropyConfig& config, F&& f) {
  const float a = config.cap_a;
  switch (config.cap) {
    case LogitCap::kNone:
      return f(NoCapRule<Math>{});
    case LogitCap::kTanh:
      return f(SigmoidCapRule<Math>{2 * a, 0, a / 2, -a});
    case LogitCap::kSigmoid:
      return f(SigmoidCapRule<Math>{a, config.cap_b, config.cap_c, 0});
  }
}

}  // namespace ingot
