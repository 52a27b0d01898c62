// y = a x + b z with learned scalars, as the speed run of GPT-2 124M mixes the residual stream with the
// embedding, with the output of an earlier block, and values with value embeddings
// (github.com/KellerJordan/modded-nanogpt, January 2025).
//
// Shapes: x, z, y and their gradients (N, C), f32, bf16 or f16, with rows of any stride; a, b and theirs (1)
// f32. An absent a or b stands for 1, an absent z for no second term. Everything is computed in f32 and
// rounded once.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

struct MixTerms {
  Tensor x, z;  // z may be absent
  Tensor a, b;  // may be absent
};

// y may alias x or z.
void mix_forward(const Tensor& y, const MixTerms& terms, Stream& stream);

// dx = a dy, dz = b dy; adds sum(dy x) to da and sum(dy z) to db. Each of the four may be absent; dx and dz
// may alias dy. terms.x and terms.z are needed for da and db only. scratch: at least (2, row_sum_parts) f32
// (ops/row_sum.h).
void mix_backward(const MixTerms& gradients, const Tensor& dy, const MixTerms& terms, const Tensor& scratch,
                  Stream& stream);

}  // namespace ingot
