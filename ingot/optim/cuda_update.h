// One update of one parameter on a CUDA device by an elementwise rule (optim/elementwise_rule.h), and the
// global norm that clips it; nothing waits for the device. Defined in builds with CUDA.
#pragma once

#include "ingot/optim/rule.h"

namespace ingot::cuda {

// Updates p, all of whose tensors are on the device, as ElementwiseRule<Rule> does on the CPU: weights (f32
// with their bf16 copy, bf16 with a tail, or bf16 rounded stochastically by the same random numbers), state
// and average in one pass; leaves g zero. clip: (1) f32 on the device, multiplies g before everything else;
// absent:
// 1. Totals are not collected. Rule: Sgd, Momentum, Adam, AdamW or Lion.
template <typename Rule>
void update_elementwise(const ParamState& p, const Rule& rule, const RuleStep& step, const Tensor& clip,
                        Stream& stream);

// Partial sums of squares: the number of blocks that add them, whatever the device, so that the order of
// every sum follows from the sizes alone.
inline constexpr int64_t kSquareParts = 1024;

// parts (kSquareParts) f32 += the squares of x's elements (f32, contiguous).
void add_squares(const Tensor& parts, const Tensor& x, Stream& stream);

// norm = correction * sqrt(sum of parts);  factor = correction * min(1, limit / (norm + 1e-6)), limit 0: no
// clipping. factor and norm (1) f32.
void clip_factor(const Tensor& factor, const Tensor& norm, const Tensor& parts, float limit, float correction,
                 Stream& stream);

}  // namespace ingot::cuda
