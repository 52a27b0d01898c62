// LayerNorm (Ba et al. 2016, arXiv:1607.06450): y = w * (x - mean) * rstd + b, rstd = 1 / sqrt(var + eps).
// The variance is biased and computed from the deviations (E[x^2] - E[x]^2 would cancel).
// RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467): y = w * x * rstd, rstd = 1 / sqrt(mean(x^2) + eps). It
// has no mean and no b.
//
// Shapes: x, y, sum, residual, dx, dy, d_residual (N, C), f32, bf16 or f16, all of one dtype, contiguous; w,
// b, dw, db (C) f32, each of which may be absent; mean, rstd (N) f32. Statistics and sums are f32. The ops
// raise y.amax or dx.amax (Tensor::with_amax).
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// If residual is present, the norm is that of sum = x + residual (rounded to the dtype), and sum may alias x
// or residual. y may alias x, or the one of x and residual that sum does not alias, but not sum.
struct NormOperands {
  Tensor y = {}, sum = {};
  Tensor mean = {}, rstd = {};  // absent for inference
  Tensor x = {}, residual = {};
  Tensor w = {}, b = {};
  float eps = 0;
};
void layernorm_forward(const NormOperands& t, Stream& stream);
void rmsnorm_forward(const NormOperands& t, Stream& stream);

// LayerNorm: dx = d_residual + rstd * (g - mean(g) - xhat * mean(g * xhat)) with g = w * dy and xhat = (x -
// mean) * rstd; dw += sum over rows of dy * xhat; db += sum over rows of dy.
// RMSNorm: dx = d_residual + rstd * (w * dy - x * rstd^2 * mean(w * dy * x)); dw += sum over rows of dy * x *
// rstd.
// x is the input that forward normalised; mean and rstd are forward's outputs. d_residual may be absent, and
// dx may alias dy or d_residual.
struct NormBackwardOperands {
  Tensor dx = {}, dw = {}, db = {}, dy = {};
  Tensor x = {}, w = {}, mean = {}, rstd = {};
  Tensor d_residual = {};
  // For each of dw and db that is present (num_threads(), C) f32, on a CUDA device (kRowParts, C)
  // (ops/row_sum.h).
  Tensor scratch = {};
};
void layernorm_backward(const NormBackwardOperands& t, Stream& stream);
void rmsnorm_backward(const NormBackwardOperands& t, Stream& stream);

}  // namespace ingot
