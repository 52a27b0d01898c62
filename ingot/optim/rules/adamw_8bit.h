// AdamW with 8-bit states (Dettmers et al. 2022, arXiv:2110.02861): the rule of optim/rules/adamw.h on m and v that
// are kept as codes of the dynamic maps (optim/rules/dynamic_map.h), by blocks of 256 elements with one f32 scale,
// the block's largest magnitude. A step reads codes to f32, updates m, v and w in f32, and rounds the new m
// and v to the nearest codes; w moves by the exact ones. Parameters under 4096 elements keep f32 states.
//
// As torch.optim.AdamW and unlike bitsandbytes the decay comes before the update, and m is rounded to the
// nearest code whatever its sign (bitsandbytes moves a negative m that would become 0 one code down).
// A gradient that is not finite, or whose square is not, leaves its element's weight as it was and its
// moments to be rounded again, and is counted (Optimizer::non_finite_gradients).
//
// Of a scattered piece (tensor-parallel ranks) a block may lie on several ranks: they tell each other its
// largest magnitudes first, for which m and v are moved twice, and every rank keeps the scales of all blocks.
//
// State: m8, v8 (n) u8, m_absmax, v_absmax (n / 256, rounded up) f32; 2 + 8 / 256 bytes per parameter.
#pragma once

#include <array>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/adamw.h"
#include "ingot/optim/rules/elementwise_rule.h"

namespace ingot {

class AdamW8bit final : public UpdateRule {
 public:
  static constexpr int64_t kBlock = 256, kSmallest = 4096;

  explicit AdamW8bit(const RuleParams& params);

  std::vector<StateSpec> state(const OptimParam& param) const override;
  RuleNeeds needs(const OptimParam& param) const override;
  void measure(const ParamState& p, const RuleStep& step, const SharedNumbers& numbers,
               int turn) const override;
  Prepared prepare(const ParamState& p, const RuleStep& step, const SharedNumbers& numbers,
                   Arena& scratch) const override;
  RangeTotals update(const ParamState& p, Range range, const RuleStep& step,
                     const Prepared& prepared) const override;

 private:
  RangeTotals update_scattered(const ParamState& p, Range range, const RuleStep& step,
                               const Prepared& prepared) const;

  RuleParams params_;
  ElementwiseRule<AdamW> small_;
  std::array<float, 256> signed_map_, unsigned_map_;
};

}  // namespace ingot
