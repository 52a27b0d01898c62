// LayerNorm (Ba et al. 2016, arXiv:1607.06450): y = w * (x - mean) * rstd + b, rstd = 1 / sqrt(var +
// eps). The variance is biased and computed from the deviations (E[x^2] - E[x]^2 would cancel).
//
// Shapes: x, y, dx, dy, residual (N, C), f32, bf16 or f16, all of one dtype, contiguous; w, b, dw, db
// (C) f32, where w and b may each be absent; mean, rstd (N) f32. Statistics and sums are f32. The ops raise
// y.amax or dx.amax (Tensor::with_amax).
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// y may alias x. mean and rstd are both present or both absent (inference).
void layernorm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                       const Tensor& w, const Tensor& b, float eps, Stream& stream);

// sum = x + residual (rounded to the dtype), y = norm(sum). sum may alias x or residual, but y must not
// alias sum.
void residual_layernorm_forward(const Tensor& y, const Tensor& sum, const Tensor& mean, const Tensor& rstd,
                                const Tensor& x, const Tensor& residual, const Tensor& w, const Tensor& b,
                                float eps, Stream& stream);

// dx = d_residual + rstd * (g - mean(g) - xhat * mean(g * xhat)) with g = w * dy and xhat = (x - mean) *
// rstd; dw += sum over rows of dy * xhat; db += sum over rows of dy. d_residual (N, C), dw and db may
// each be absent. x is the input that forward normalised, mean and rstd are forward's outputs. dx may
// alias dy or d_residual. scratch: (2, num_threads(), C) f32, on a CUDA device (2, kRowParts, C). Half
// of it is enough if only one of dw and db is present; it is unused if both are absent.
void layernorm_backward(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& dy,
                        const Tensor& x, const Tensor& w, const Tensor& mean, const Tensor& rstd,
                        const Tensor& d_residual, const Tensor& scratch, Stream& stream);

}  // namespace ingot
