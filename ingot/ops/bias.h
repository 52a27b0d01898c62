// Bias of a linear layer: y = y + b, row by row.
//
// Shapes: y, dy (N, C), f32, bf16 or f16, contiguous; b, db (C) f32.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// In place: y = y + b, rounded once.
void bias_forward(const Tensor& y, const Tensor& b, Stream& stream);

// db += column sums of dy. scratch: (num_threads(), C) f32, on a CUDA device (kRowParts, C). Raises dy.amax
// (Tensor::with_amax).
void bias_backward(const Tensor& db, const Tensor& dy, const Tensor& scratch, Stream& stream);

}  // namespace ingot
