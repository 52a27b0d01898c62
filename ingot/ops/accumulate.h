// to += from, in f32.
//
// Shapes: equal, contiguous. to: f32; from: f32, bf16 or f16.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

void accumulate(const Tensor& to, const Tensor& from, Stream& stream);

}  // namespace ingot
