// The caps of the logits as elementwise rules: value and slope side by side. Internal to the loss ops.
#pragma once

#include "ingot/ops/cross_entropy.h"
#include "ingot/ops/vec.h"

namespace ingot {

struct Capped {
  vec::Vec z, slope;  // cap(x), cap'(x)
};

struct NoCap {
  Capped operator()(vec::Vec x) const { return {x, vec::splat(1.0f)}; }
};

// z = gain * sigmoid((x + offset) / width) + shift: both caps, as a tanh(x / a) = 2a sigmoid(2x / a) - a.
struct SigmoidCap {
  float gain, offset, width, shift;
  Capped operator()(vec::Vec x) const {
    const vec::Vec s = 1.0f / (1.0f + vec::exp(x * (-1 / width) - offset / width));
    return {gain * s + shift, (gain / width) * (s - s * s)};
  }
};

// Calls f with the config's cap.
template <typename F>
void with_cap(const CrossEntropyConfig& config, F&& f) {
  const float a = config.cap_a;
  switch (config.cap) {
    case LogitCap::kNone:
      return f(NoCap{});
    case LogitCap::kTanh:
      return f(SigmoidCap{2 * a, 0, a / 2, -a});
    case LogitCap::kSigmoid:
      return f(SigmoidCap{a, config.cap_b, config.cap_c, 0});
  }
}

}  // namespace ingot
