// LayerNorm (Ba et al. 2016, arXiv:1607.06450): y = w * (x - mean) * rstd + b, rstd = 1 / sqrt(var + eps),
// with the biased variance, computed from the deviations (not as E[x^2] - E[x]^2, which cancels).
//
// Shapes: x, y, dx, dy, residual (N, C), f32, bf16 or f16, all of one dtype, contiguous; w, b, dw, db (C)
// f32; w and b may each be absent; mean, rstd (N) f32. Statistics and sums are f32.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// y may alias x. With mean and rstd absent (both or neither), the statistics are not kept (inference).
void layernorm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                       const Tensor& w, const Tensor& b, float eps, Stream& stream);

// sum = x + residual (rounded to the dtype), y = norm(sum). sum may alias x or residual; y must not alias
// sum.
void residual_layernorm_forward(const Tensor& y, const Tensor& sum, const Tensor& mean, const Tensor& rstd,
                                const Tensor& x, const Tensor& residual, const Tensor& w, const Tensor& b,
                                float eps, Stream& stream);

// dx = d_residual + rstd * (g - mean(g) - xhat * mean(g * xhat)), g = w * dy, xhat = (x - mean) * rstd, with
// d_residual (N, C) optional; dw += sum over rows of dy * xhat; db += sum over rows of dy; either may be
// absent. x is what forward normalised, mean and rstd what it kept. dx may alias dy or d_residual.
// scratch: (2, num_threads(), C) f32, of a CUDA device (2, kRowParts, C); one half is enough with one of dw,
// db, and none without both.
void layernorm_backward(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& dy,
                        const Tensor& x, const Tensor& w, const Tensor& mean, const Tensor& rstd,
                        const Tensor& d_residual, const Tensor& scratch, Stream& stream);

}  // namespace ingot
