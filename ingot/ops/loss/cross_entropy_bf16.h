// The cross-entropy with a mistake in it, to be shown and to be found: ops/cross_entropy.h with every number
// a bf16. Logits, differences, exponentials, their running sum, its logarithm and the loss are rounded one by
// one. A running sum of bf16 takes no term below half a unit in its last place, so equal terms stop at 256 of
// them: over a vocabulary of thousands the log-sum-exp comes out too small, the loss too good, and the
// probabilities of the gradient add up to more than one.
//
// Shapes: logits (N, Vp) f32, whose memory is used up; targets (N) i32; losses (N) f32; is_correct (N) u8 or
// absent; d_logits (N, Vp) bf16 or absent. Plain cross-entropy only: no cap, smoothing or z-loss.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot {

// What the loss is computed in. kBf16Logits: from logits rounded to bf16, in f32 otherwise, as automatic
// mixed precision does it. kBf16: the mistake above.
enum class LossDtype { kF32, kBf16Logits, kBf16 };

// x (f32, contiguous) = its elements rounded to bf16.
void round_to_bf16(const Tensor& x, Stream& stream);

void cross_entropy_in_bf16(const Tensor& losses, const Tensor& is_correct, const Tensor& d_logits,
                           const Tensor& logits, const Tensor& targets, const CrossEntropyConfig& config,
                           Stream& stream);

}  // namespace ingot
