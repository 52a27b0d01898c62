// Converts between f32 numbers and bf16 weights that are trained without f32 masters. Without a tail the
// f32 numbers are the bf16 weights themselves; with a 16-bit tail per weight (ops/bf16_tail.h) they are
// exact f32 masters.
//
// numbers f32, w bf16, tail u16 or absent: equal shapes, contiguous, no aliasing.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

void expand_masters(const Tensor& numbers, const Tensor& w, const Tensor& tail, Stream& stream);

// w (and tail) = numbers; without a tail they are rounded to nearest even. Then numbers = 0.
void collapse_masters(const Tensor& w, const Tensor& tail, const Tensor& numbers, Stream& stream);

}  // namespace ingot
