// One update of one parameter on a CUDA device by an elementwise rule (optim/rules/elementwise_rule.h), and the
// global norm's squares; nothing waits for the device. Defined in builds with CUDA.
#pragma once

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/adamw.h"

namespace ingot::cuda {

// Updates p, all of whose tensors are on the device, as ElementwiseRule<Rule> does on the CPU: weights (f32
// with their bf16 or f16 copy, bf16 with a tail, or bf16 rounded stochastically by the same random numbers),
// state and average in one pass; leaves g zero. totals: (update_blocks(n), 4) f32 = sums of RangeTotals'
// squares and product, a row for each block of elements; absent: not wanted. Rule: Sgd, Momentum, Adam, AdamW
// or Lion.
template <typename Rule>
void update_elementwise(const ParamState& p, const Rule& rule, const RuleStep& step, const Tensor& totals,
                        Stream& stream);

// The same as AdamW8bit on the CPU (optim/rules/adamw_8bit.h) of a parameter whose state it keeps in 8 bits.
// Gradients that it passes over are not counted: they make the norm infinite, and no update follows.
void update_adamw_8bit(const ParamState& p, const AdamW& rule, const RuleStep& step, const Tensor& totals,
                       Stream& stream);

// Rows of totals of a parameter of n elements, at the most.
int64_t update_blocks(int64_t n);

// Partial sums of squares: the number of blocks that add them, whatever the device, so that the order of
// every sum follows from the sizes alone.
inline constexpr int64_t kSquareParts = 1024;

// A tensor whose squares are added.
struct SquareRange {
  const float* x;  // aligned to 16 bytes
  int64_t n;
};

// parts (kSquareParts) f32 = the squares of all elements of the ranges. ranges: (count, sizeof(SquareRange))
// u8 on the device; longest: elements of the longest one.
void sum_squares(const Tensor& parts, const Tensor& ranges, int64_t longest, Stream& stream);

}  // namespace ingot::cuda
