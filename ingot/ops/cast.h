// Conversion between f32, bf16 and f16, rounding to nearest even.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// to = from. Both have equal shapes, are contiguous, and are f32, bf16 or f16. They must not overlap
// unless they are the same tensor.
void cast(const Tensor& to, const Tensor& from, Stream& stream);

// Casts with error feedback (Seide et al. 2014, "1-bit stochastic gradient descent"): to (n) bf16 or f16 =
// from + residual, rounded; residual = the rounding error, or 0 where it is not finite because the sum
// overflowed. from and residual are (n) f32. All are contiguous and do not overlap.
void cast_with_feedback(const Tensor& to, const Tensor& from, const Tensor& residual, Stream& stream);

}  // namespace ingot
