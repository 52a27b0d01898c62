// The dtype in which gradients travel between ranks.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

struct GradientPayload {
  // f32: unchanged. bf16, f16: rounded, which halves the bytes; sums are still in f32. f16 has three more
  // bits of precision than bf16, but it cannot represent values below 6e-8, and a value above 65504 becomes
  // infinite and is reported.
  DType blocks = DType::f32;
  DType ends = DType::f32;  // for the embedding and the head, whose rows few tokens see
  // If true, the rounding error of a gradient is added to it the next time (Seide et al. 2014). Takes 4 bytes
  // per parameter whose payload is not f32.
  bool has_error_feedback = false;

  DType of_unit(int unit, int units) const { return unit == 0 || unit + 1 == units ? ends : blocks; }
  // Throws a kUsage error that names the key.
  void validate() const;
};

// payload (n) bf16 or f16 = grad (n) f32, rounded. With a residual (n) f32, the payload is grad + residual,
// and the residual becomes the rounding error; where the payload is not finite (the gradient overflowed and
// the step is skipped), it becomes 0, so the next step starts clean. residual may be empty.
void round_gradients(const Tensor& payload, const Tensor& grad, const Tensor& residual, Stream& stream);

}  // namespace ingot
