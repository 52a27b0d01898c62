// Two tensors of f32 that change their numbers.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// a, b: f32, of one shape, contiguous, not overlapping.
void swap(const Tensor& a, const Tensor& b, Stream& stream);

}  // namespace ingot
