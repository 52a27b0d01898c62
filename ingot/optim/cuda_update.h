// Updates of one parameter on a CUDA device by an elementwise rule (optim/rules/elementwise_rule.h), and the
// sums of squares for the global norm. The host does not wait for the device. Defined in builds with CUDA.
#pragma once

#include <tuple>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/rule_list.h"

namespace ingot::cuda {

// Updates p, all of whose tensors are on the device, as ElementwiseRule<Rule> does on the CPU, in one pass
// over weights, state and average; zeroes g. The weights are f32 with their bf16 or f16 copy, bf16 with a
// tail, or bf16 that is rounded stochastically with the same random numbers as on the CPU. totals
// (update_blocks(n), 4) f32 = the sums of RangeTotals' squares and product, one row per block of elements;
// empty if not wanted. Rule: one of ElementwiseRules (optim/rules/rule_list.h).
template <typename Rule>
void update_elementwise(const ParamState& p, const Rule& rule, const RuleStep& step, const Tensor& totals,
                        Stream& stream);

// Maximum number of rows of totals for a parameter of n elements.
int64_t update_blocks(int64_t n);

// Number of partial sums of squares, i.e. of blocks that compute them, on any device, so that the order of
// every sum depends only on the sizes.
inline constexpr int64_t kSquareParts = 1024;

// A tensor whose squares are summed.
struct SquareRange {
  const float* x;  // aligned to 16 bytes
  int64_t n;
};

// parts (kSquareParts) f32 = partial sums of the squares of all elements of the ranges. ranges: (count,
// sizeof(SquareRange)) u8 on the device; longest: number of elements of the longest one.
void sum_squares(const Tensor& parts, const Tensor& ranges, int64_t longest, Stream& stream);

// One function per elementwise rule of the list. nvcc compiles all of them in one file, and the template
// above finds its own by the type of the rule.
template <typename Rule>
using ElementwiseUpdate = void (*)(const ParamState& p, const Rule& rule, const RuleStep& step,
                                   const Tensor& totals, Stream& stream);
template <typename... Rules>
using ElementwiseUpdates = std::tuple<ElementwiseUpdate<Rules>...>;
template <typename... Rules>
ElementwiseUpdates<Rules...> updates_of(TypeList<Rules...> rules);  // declared for its type only
using AllElementwiseUpdates = decltype(updates_of(ElementwiseRules()));

const AllElementwiseUpdates& elementwise_updates();

template <typename Rule>
void update_elementwise(const ParamState& p, const Rule& rule, const RuleStep& step, const Tensor& totals,
                        Stream& stream) {
  std::get<ElementwiseUpdate<Rule>>(elementwise_updates())(p, rule, step, totals, stream);
}

}  // namespace ingot::cuda
