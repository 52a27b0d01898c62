// The language-model head: linear layer and cross-entropy fused, chunk by chunk of tokens, so that the
// logits (N, V) never exist. Gradients are computed in the same pass, while a chunk's logits are at hand
// (as Liger-Kernel does, Hsu et al. 2024, arXiv:2410.10989).
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot {

struct LinearCrossEntropyGrads {
  Tensor dx;  // (N, C) like x, overwritten
  Tensor dw;  // (Vp, C) f32, +=
};

// Per token n: losses (N) f32 and is_correct (N) u8 of targets (N) i32 under logits = x (N, C) · w (Vp, C)ᵀ,
// with x and w both f32 or both bf16. With grads, also their gradients, scaled by config.grad_scale.
// logits: scratch (chunk, Vp) f32; it sets how many tokens a chunk has. d_logits: scratch (chunk, Vp) bf16,
// absent for f32 (the logits' memory serves) and without grads. Nothing may alias.
void linear_cross_entropy(const Tensor& losses, const Tensor& is_correct,
                          const LinearCrossEntropyGrads* grads, const Tensor& x, const Tensor& w,
                          const Tensor& targets, const CrossEntropyConfig& config, const Tensor& logits,
                          const Tensor& d_logits, Stream& stream);

}  // namespace ingot
