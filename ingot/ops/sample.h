// Draws the next token from softmax(logits / temperature). top_k restricts the draw to the highest
// logits (Fan et al. 2018, arXiv:1805.04833); top_p then restricts it to the smallest set of these,
// highest first, whose probabilities sum to at least top_p (nucleus sampling, Holtzman et al. 2019,
// arXiv:1904.09751). Equal logits rank by id, lowest first, so exactly top_k remain.
#pragma once

#include "ingot/core/philox.h"
#include "ingot/core/tensor.h"

namespace ingot {

struct SampleConfig {
  float temperature = 1.0f;  // 0 picks the highest logit, the lowest id among equals
  int64_t top_k = 0;         // 0 means no limit
  float top_p = 1.0f;        // in (0, 1]

  void validate() const;  // throws a kUsage error if a value is out of range
};

// Returns a token id below vocab, as a pure function of the arguments. logits (V) f32, contiguous; only
// the first vocab of them count. A logit of -inf is never drawn. NaN, +inf, or only -inf among them is a
// kNumerics error. scratch: i32, contiguous, at least vocab elements; unused without top_k and top_p.
int32_t sample_token(const Tensor& logits, int64_t vocab, const SampleConfig& config, const RandomKey& key,
                     const Tensor& scratch);

}  // namespace ingot
