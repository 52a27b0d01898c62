// sum = x + residual, where nothing follows that would take it along (ops/rmsnorm.h and ops/layernorm.h do).
//
// Shapes: all alike, contiguous, of one dtype: f32 or bf16, added in f32. sum may be x or residual.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

void residual_add(const Tensor& sum, const Tensor& x, const Tensor& residual, Stream& stream);

}  // namespace ingot
