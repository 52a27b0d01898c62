// The transpose of a square of numbers in registers. (nvcc does not know the compilers' shuffles, so kernels
// do not include this file.)
#pragma once

#include <utility>

#include "ingot/ops/simd/vec.h"

namespace ingot::vec {

// Transposes kLanes x kLanes in registers, in log2(kLanes) rounds that exchange off-diagonal halves.
template <int kStep = 1>
inline void transpose(Vec (&r)[kLanes]) {
  if constexpr (kStep < kLanes) {
    const auto exchange = [&]<int... I>(std::integer_sequence<int, I...>) {
      for (int i = 0; i < kLanes; ++i) {
        if (i & kStep) continue;
        const Vec low = r[i], high = r[i + kStep];
        r[i] = __builtin_shufflevector(low, high, ((I & kStep) ? kLanes + I - kStep : I)...);
        r[i + kStep] = __builtin_shufflevector(low, high, ((I & kStep) ? kLanes + I : I + kStep)...);
      }
    };
    exchange(std::make_integer_sequence<int, kLanes>{});
    transpose<kStep * 2>(r);
  }
}

}  // namespace ingot::vec
