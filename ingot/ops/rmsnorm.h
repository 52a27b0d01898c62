// RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467): y = w * x * rstd, rstd = 1 / sqrt(mean(x^2) + eps).
//
// Shapes: x, y, dx, dy, residual (N, C), f32, bf16 or f16, all of one dtype, contiguous; w, dw (C) f32,
// or absent for the weightless form; rstd (N) f32. Statistics and sums are f32. The ops raise y.amax or
// dx.amax (Tensor::with_amax).
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// y may alias x. rstd may be absent (inference).
void rmsnorm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& w, float eps,
                     Stream& stream);

// sum = x + residual (rounded to the dtype), y = norm(sum). sum may alias x or residual, and y may alias
// the one that sum does not alias; y must not alias sum.
void residual_rmsnorm_forward(const Tensor& y, const Tensor& sum, const Tensor& rstd, const Tensor& x,
                              const Tensor& residual, const Tensor& w, float eps, Stream& stream);

// dx = d_residual + rstd * (w * dy - x * rstd^2 * mean(w * dy * x)); dw += sum over rows of dy * x *
// rstd. d_residual (N, C) and dw may be absent. x is the input that forward normalised, rstd is
// forward's output. dx may alias dy or d_residual. scratch: (num_threads(), C) f32, on a CUDA device
// (kRowParts, C) (ops/row_sum.h); unused if dw is absent.
void rmsnorm_backward(const Tensor& dx, const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& w,
                      const Tensor& rstd, const Tensor& d_residual, const Tensor& scratch, Stream& stream);

}  // namespace ingot
