// Direct preference optimization (Rafailov et al. 2023, arXiv:2305.18290) on the losses of two answers to the
// same prompt, y the chosen one and y' the rejected one:
//   r(y) = beta * (log p(y) - log ref(y)),  loss = log(1 + exp(-(r(y) - r(y'))))
// log p(y) is the sum over the targets of the answer's document. r is its reward. The loss follows from the
// losses of tokens, which are -log p, so its gradient is theirs with a weight per document:
//   beta * sigmoid(r(y') - r(y)) for y, and the same with the other sign for y'.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

struct PreferenceIn {
  Tensor losses;     // (N) f32, of tokens, in nats; N = B*T
  Tensor targets;    // (B,T) i32; kIgnoreIndex where there is none
  Tensor doc_start;  // (B,T) i32: position in the row where the token's document begins
  Tensor reference;  // (B,T) f32: log ref of a document at its first token, whatever elsewhere
};

// A pair is counted once, at the first token of its chosen document; everywhere else the results are 0, and
// `counted` is kIgnoreIndex.
struct PreferenceOut {
  Tensor losses;      // (N) f32
  Tensor is_correct;  // (N) u8: the reward of the chosen answer is the higher one
  Tensor counted;     // (N) i32: 0
  Tensor rewards;     // (2, N) f32: of the chosen answers, and of the rejected ones
  Tensor weights;     // (N) f32: the factor of each token's gradient; or empty
};

// In each row of the batch the first document is chosen, the second rejected, and so on; the last one has no
// partner if it is padding. All tensors are on the CPU, and contiguous; none may alias another.
void preference_loss(const PreferenceOut& out, const PreferenceIn& in, float beta, Stream& stream);

// x (N, V) f32, bf16 or f16: multiplies row n by factors (N) f32. On the CPU.
void scale_rows(const Tensor& x, const Tensor& factors, Stream& stream);

}  // namespace ingot
