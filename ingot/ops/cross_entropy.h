// Cross-entropy of capped logits, and its gradient, for one chunk of rows of the classifier:
//   z = cap(x),  lse = log(sum_j exp z_j),  q_j = (1 - smoothing) [j = target] + smoothing / V
//   loss = lse - sum_j q_j z_j + z_loss * lse^2
//   dx_j = grad_scale * (softmax(z)_j * (1 + 2 z_loss lse) - q_j) * cap'(x_j)
// Label smoothing follows Szegedy et al. 2016 (arXiv:1512.00567), z-loss Chowdhery et al. 2022
// (arXiv:2204.02311).
//
// Shapes: logits x (N, Vp) f32; targets (N) i32; losses (N) f32; is_correct (N) u8; d_logits (N, Vp) f32,
// bf16 or f16. On a CUDA device the logits may be bf16, and d_logits then is, too. All are contiguous.
// Columns from `vocab` on are padding: their probability and gradient are zero. A row whose target is
// kIgnoreIndex has loss 0 and gradient zero, and is_correct is 0.
#pragma once

#include "ingot/core/ignore_index.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// kNone: z = x. kTanh: z = a tanh(x / a) (Gemma Team 2024, arXiv:2408.00118). kSigmoid: z = a sigmoid((x
// + b) / c). Since 2a sigmoid(2x / a) = a tanh(x / a) + a, kSigmoid with 2a, b = 0 and c = a / 2 has the
// same loss and gradient as kTanh with a.
enum class LogitCap { kNone, kTanh, kSigmoid };

struct CrossEntropyConfig {
  int64_t vocab = 0;  // number of columns that are classes
  LogitCap cap = LogitCap::kNone;
  float cap_a = 0, cap_b = 0, cap_c = 1;
  float grad_scale = 1;  // factor of d_logits only, e.g. 1 / (tokens of the global batch)
  float label_smoothing = 0, z_loss = 0;
};

// losses = the loss of each row; is_correct = whether the target has the largest logit (among equal logits
// the lowest index counts); d_logits = the gradient. is_correct and d_logits may be absent. Without d_logits
// the logits are unchanged; with it their memory holds intermediate values, and a d_logits of their dtype
// may alias them. Exponentials are f32, and their sum is accumulated in double. A NaN logit gives a NaN loss,
// and so does +inf without a cap. A target that is neither in [0, vocab) nor kIgnoreIndex is a kData error
// that names the target and its index; on a CUDA device it gives a NaN loss and a zero gradient.
void cross_entropy(const Tensor& losses, const Tensor& is_correct, const Tensor& d_logits,
                   const Tensor& logits, const Tensor& targets, const CrossEntropyConfig& config,
                   Stream& stream);

// Returns the largest slope of the cap: 1, or a / (4c) for the sigmoid.
float max_slope(const CrossEntropyConfig& config);

}  // namespace ingot
