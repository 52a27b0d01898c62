// Products of a linear layer with what stands beside them done in the same pass: the bias, GELU (kGeluTanh of
// ops/activation.h) and its derivative, the bias' gradient. On a CUDA device by cuBLASLt's epilogues where it
// has one for the shapes, and else, as on the CPU, by the ops that they consist of.
//
// Shapes: x (M, K), w (N, K), y, act, pre, dy (M, N), dx, d_pre (M, K): f32 or bf16, all of one dtype,
// contiguous; b, db (N) and dw (N, K) f32. Products are accumulated in f32.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// y = x · wᵀ + b. rounded: scratch (N) of y's dtype, in which a device's product takes the bias.
void linear_bias(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& rounded,
                 Stream& stream);

// pre = x · wᵀ + b, act = gelu(pre). rounded as above.
void linear_gelu(const Tensor& act, const Tensor& pre, const Tensor& x, const Tensor& w, const Tensor& b,
                 const Tensor& rounded, Stream& stream);

// d_pre = (dy · w) gelu'(pre), pre (M, K) as linear_gelu left it. d_pre must not be pre.
void linear_gelu_backward(const Tensor& d_pre, const Tensor& dy, const Tensor& w, const Tensor& pre,
                          Stream& stream);

// dw += dyᵀ · x, db += column sums of dy. sums: scratch (num_threads(), N) f32, of a CUDA device (kRowParts,
// N).
void linear_weight_gradients(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                             const Tensor& sums, Stream& stream);

}  // namespace ingot
