// RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467): y = w * x * rstd, rstd = 1 / sqrt(mean(x^2) + eps).
//
// Shapes: x, y, dx, dy, residual (N, C), f32, bf16 or f16, all of one dtype, contiguous; w, dw (C) f32, or an
// absent tensor for the weightless form; rstd (N) f32. Statistics and sums are f32.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// y may alias x. With rstd absent, the statistics are not kept (inference).
void rmsnorm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& w, float eps,
                     Stream& stream);

// sum = x + residual (rounded to the dtype), y = norm(sum). sum may alias x or residual, y may
// alias the one that sum does not; y must not alias sum.
void residual_rmsnorm_forward(const Tensor& y, const Tensor& sum, const Tensor& rstd, const Tensor& x,
                              const Tensor& residual, const Tensor& w, float eps, Stream& stream);

// dx = d_residual + rstd * (w * dy - x * rstd^2 * mean(w * dy * x)), with d_residual (N, C) optional;
// dw += sum over rows of dy * x * rstd. x is what forward normalised, rstd what it kept.
// dx may alias dy or d_residual. scratch: (num_threads(), C) f32, of a CUDA device
// (kRowParts, C) (ops/row_sum.h); unused without dw.
void rmsnorm_backward(const Tensor& dx, const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& w,
                      const Tensor& rstd, const Tensor& d_residual, const Tensor& scratch, Stream& stream);

}  // namespace ingot
