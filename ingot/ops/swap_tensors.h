// Exchanges the elements of two f32 tensors.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// a, b: f32, of equal shape, contiguous, not overlapping.
void swap(const Tensor& a, const Tensor& b, Stream& stream);

}  // namespace ingot
