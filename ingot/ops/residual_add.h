// sum = x + residual, for residual connections that are not fused into a following norm (ops/norm.h).
//
// Shapes: all equal, contiguous, of one dtype: f32 or bf16, added in f32. sum may alias x or residual.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

void residual_add(const Tensor& sum, const Tensor& x, const Tensor& residual, Stream& stream);

}  // namespace ingot
