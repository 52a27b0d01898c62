// Sums with learned factors: of the residual stream and another value, and of values and value embeddings
// (ops/mix.h).
#pragma once

#include "ingot/nn/primitives/attention.h"
#include "ingot/nn/program/builder.h"

namespace ingot {

struct MixScalars {
  int a = -1, b = -1;  // parameters (1); -1: none
};

// Returns a x + b z, where an absent factor is 1. x, z (n, C).
ValueId mix(Builder& b, ValueId x, ValueId z, const MixScalars& scalars);
// Returns qkv with its values v replaced, in place, by a v + b z; z (N, K D) may be kNoValue.
ValueId mix_values(Builder& b, ValueId qkv, ValueId z, const MixScalars& scalars, const HeadsSpec& heads);

}  // namespace ingot
