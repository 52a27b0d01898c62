// Updates of parameters on a CUDA device by an elementwise rule (optim/rules/elementwise_rule.h), and the
// sums of squares for the global norm. The host does not wait for the device. Defined in builds with CUDA.
#pragma once

#include <span>
#include <tuple>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/rule_list.h"

namespace ingot::cuda {

// The update of one parameter. totals (update_blocks(n), 4) f32 = the sums of RangeTotals' squares and
// product, one row per block of elements; empty if not wanted.
template <typename Rule>
struct ElementwiseUpdate {
  const ParamState* p;
  Rule rule;
  const RuleStep* step;
  Tensor totals;
};

// Updates parameters, all of whose tensors are on the device, as ElementwiseRule<Rule> does on the CPU, in
// one pass over weights, state and average; zeroes g. One launch updates dozens of parameters. The weights
// are f32 with their bf16 or f16 copy, bf16 with a tail, or bf16 that is rounded stochastically with the same
// random numbers as on the CPU. Rule: one of ElementwiseRules (optim/rules/rule_list.h).
template <typename Rule>
void update_elementwise(std::span<const ElementwiseUpdate<Rule>> updates, Stream& stream);
// Updates one parameter.
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
using UpdateElementwise = void (*)(std::span<const ElementwiseUpdate<Rule>> updates, Stream& stream);
template <typename... Rules>
using ElementwiseUpdates = std::tuple<UpdateElementwise<Rules>...>;
template <typename... Rules>
ElementwiseUpdates<Rules...> updates_of(TypeList<Rules...> rules);  // declared for its type only
using AllElementwiseUpdates = decltype(updates_of(ElementwiseRules()));

const AllElementwiseUpdates& elementwise_updates();

template <typename Rule>
void update_elementwise(std::span<const ElementwiseUpdate<Rule>> updates, Stream& stream) {
  std::get<UpdateElementwise<Rule>>(elementwise_updates())(updates, stream);
}

template <typename Rule>
void update_elementwise(const ParamState& p, const Rule& rule, const RuleStep& step, const Tensor& totals,
                        Stream& stream) {
  const ElementwiseUpdate<Rule> update{&p, rule, &step, totals};
  update_elementwise(std::span(&update, 1), stream);
}

}  // namespace ingot::cuda
