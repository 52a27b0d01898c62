// Draws the next token from softmax(logits / temperature), cut to the top_k highest logits (Fan et al. 2018,
// arXiv:1805.04833), then to the fewest of these, highest first, whose probabilities reach top_p (nucleus,
// Holtzman et al. 2019, arXiv:1904.09751). Equal logits rank by id, lowest first, so exactly top_k remain.
#pragma once

#include "ingot/core/philox.h"
#include "ingot/core/tensor.h"

namespace ingot {

struct SampleConfig {
  float temperature = 1.0f;  // 0: the highest logit, lowest id first
  int64_t top_k = 0;         // 0: no limit
  float top_p = 1.0f;        // in (0, 1]

  void validate() const;  // kUsage error
};

// A token id below vocab, a pure function of its arguments. logits (V) f32, contiguous, of which the first
// vocab count; -inf never comes out. kNumerics error: NaN, +inf, or all -inf among them.
// scratch: i32, contiguous, vocab elements or more; unused without top_k and top_p.
int32_t sample_token(const Tensor& logits, int64_t vocab, const SampleConfig& config, const RandomKey& key,
                     const Tensor& scratch);

}  // namespace ingot
