// The f32 numbers behind bf16 weights that have no f32 masters: the weights themselves, or with a tail of 16
// bits each (ops/bf16_tail.h) exact ones.
//
// numbers f32, w bf16, tail u16 or absent: one shape, contiguous, nothing aliases.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

void expand_masters(const Tensor& numbers, const Tensor& w, const Tensor& tail, Stream& stream);

// w (and tail) = the numbers, without a tail rounded to nearest even; then numbers = 0.
void collapse_masters(const Tensor& w, const Tensor& tail, const Tensor& numbers, Stream& stream);

}  // namespace ingot
