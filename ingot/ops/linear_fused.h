// Products of a linear layer, fused with their elementwise neighbours: the bias, the residual stream, GELU
// and its derivative (ops/activation.h, kGeluTanh), and the gradient of the bias. A CUDA device uses a
// cuBLASLt epilogue if there is one for the shapes. Otherwise, and on the CPU, the function calls the
// separate ops.
//
// Shapes: x (M, K), w (N, K), y, base, act, pre, dy (M, N), dx, d_pre (M, K): f32 or bf16, all of one dtype,
// contiguous; b, db (N) and dw (N, K) f32. Products are accumulated in f32.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/matmul.h"

namespace ingot {

// LinearTerms holds the terms that are added to a product; each may be empty.
struct LinearTerms {
  Tensor bias = {};     // (N) f32
  Tensor rounded = {};  // (N) scratch of y's dtype, from which a CUDA device's product reads the bias
  Tensor base = {};     // (M, N), contiguous; must not alias y
};

// y = base + x · wᵀ + b. An epilogue rounds the sum once; the separate ops round after each addition.
void linear_sum(const Tensor& y, const Tensor& x, const Tensor& w, const LinearTerms& terms, Stream& stream);

// pre = x · wᵀ + b, act = gelu(pre). rounded as in LinearTerms.
void linear_gelu(const Tensor& act, const Tensor& pre, const Tensor& x, const Tensor& w, const Tensor& b,
                 const Tensor& rounded, Stream& stream);

// d_pre = (dy · w) gelu'(pre), where pre (M, K) is the output of linear_gelu. d_pre must not alias pre.
void linear_gelu_backward(const Tensor& d_pre, const Tensor& dy, const Tensor& w, const Tensor& pre,
                          Stream& stream);

// dw = dyᵀ · x, or += where dw adds; db += column sums of dy. sums: (num_threads(), N) f32 scratch, on a CUDA
// device (kRowParts, N).
void linear_weight_gradients(const WeightGradient& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                             const Tensor& sums, Stream& stream);

}  // namespace ingot
