// QK-norm (Henry et al. 2020, arXiv:2010.04245, with RMSNorm in place of L2): normalises every head of a
// query or key and then, if a table is given, rotates it (rope.h), in one pass over memory:
//   y = R_t(x * rstd),   rstd = 1 / sqrt(mean over D of x^2 + eps).
//
// x, y, dy (B,T,H,D), f32, bf16 or f16, strided with the last dim contiguous; rstd (B,T,H) f32,
// contiguous; table (T_max, R) f32 from rope_table, or absent for no rotation. For rotation without the
// norm use rope_forward.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// Works in place on x. rstd may be absent (inference).
void qk_norm_forward(const Tensor& x, const Tensor& rstd, const Tensor& table, int64_t position_offset,
                     float eps, Stream& stream);

// Works in place: dy becomes dx = rstd * R_t^-1(dy - y * mean(dy * y)), where y and rstd are the outputs
// of forward. The rotation preserves the mean of products, so y need not be rotated back.
void qk_norm_backward(const Tensor& dy, const Tensor& y, const Tensor& rstd, const Tensor& table,
                      int64_t position_offset, Stream& stream);

// The same with learned gains, for the heads of queries and keys together:
//   y = R_t(gain * x * rstd).
// The first q_heads heads have the gain q, the others k, both (D) f32.
struct QkGains {
  Tensor q = {}, k = {};
  int64_t q_heads = 0;
};
struct QkNormOperands {
  Tensor x = {};     // changed in place
  Tensor raw = {};   // receives the old x: (B,T,H,D) of its dtype, contiguous; absent for inference
  Tensor rstd = {};  // absent for inference
  QkGains gains = {};
  Tensor table = {};
  int64_t position_offset = 0;
  float eps = 0;
};
void qk_norm_gain_forward(const QkNormOperands& t, Stream& stream);

// Works in place: dy becomes dx = rstd * (g - x_hat * mean(g * x_hat)), where x_hat = raw * rstd and
// g = gain * R_t^-1(dy). Adds the sum of R_t^-1(dy) * x_hat over tokens and heads to d_gains.
struct QkNormBackwardOperands {
  Tensor dy = {};
  QkGains d_gains = {};  // q and k may both be absent
  Tensor raw = {}, rstd = {};
  QkGains gains = {};
  Tensor table = {};
  int64_t position_offset = 0;
  Tensor scratch = {};  // f32, contiguous, at least 3 * row_sum_parts (row_sum.h) x D elements
};
void qk_norm_gain_backward(const QkNormBackwardOperands& t, Stream& stream);

}  // namespace ingot
