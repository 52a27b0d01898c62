// Conversion between f32, bf16 and f16, rounding to nearest even.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// to = from. Both have equal shapes, are contiguous, and are f32, bf16 or f16. They must not overlap
// unless they are the same tensor.
void cast(const Tensor& to, const Tensor& from, Stream& stream);

}  // namespace ingot
