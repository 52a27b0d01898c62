// A deliberately wrong cross-entropy, for demonstrations and for tests that must detect it:
// ops/cross_entropy.h with every number in bf16. It rounds the logits, differences, exponentials, their
// running sum, its logarithm and the loss one by one. A running bf16 sum ignores terms below half a unit
// in its last place, so a sum of equal terms stops after 256 of them. Over a vocabulary of thousands the
// log-sum-exp is therefore too small, the loss too low, and the probabilities in the gradient add up to
// more than one.
//
// Shapes: logits (N, Vp) f32, overwritten; targets (N) i32; losses (N) f32; is_correct (N) u8 or absent;
// d_logits (N, Vp) bf16 or absent. Only the plain cross-entropy is supported: no cap, smoothing or z-loss.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot {

// The dtype that the loss is computed in. kBf16Logits rounds the logits to bf16 and computes the rest in
// f32, as automatic mixed precision does. kBf16 makes the mistake above.
enum class LossDtype { kF32, kBf16Logits, kBf16 };

// x (f32, contiguous) = x rounded to bf16, elementwise.
void round_to_bf16(const Tensor& x, Stream& stream);

void cross_entropy_in_bf16(const Tensor& losses, const Tensor& is_correct, const Tensor& d_logits,
                           const Tensor& logits, const Tensor& targets, const CrossEntropyConfig& config,
                           Stream& stream);

}  // namespace ingot
