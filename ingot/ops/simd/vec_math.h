// The Math of ops/elementwise/activation_rules.h for CPU vector registers.
#pragma once

#include "ingot/ops/simd/vec.h"

namespace ingot {

struct VecMath {
  using V = vec::Vec;
  static V constant(float x) { return vec::splat(x); }
  static V abs(V x) { return (V)((vec::UintVec)x & 0x7fffffffu); }
  static V exp(V x) { return vec::exp(x); }
  static V reciprocal(V x) { return vec::reciprocal(x); }  // REQUIRES: x >= 1
};

}  // namespace ingot
