// AdamW with 8-bit states (Dettmers et al. 2022, arXiv:2110.02861): the rule of optim/rules/adamw.h, with
// m and v stored as codes of the dynamic maps (optim/rules/dynamic_map.h). Each block of 256 elements has
// one f32 scale, its largest magnitude. A step decodes to f32, updates m, v and w in f32, and rounds the
// new m and v to the nearest codes; w moves by the values before rounding. Parameters under 4096 elements
// have f32 states.
//
// As in torch.optim.AdamW, and unlike bitsandbytes, the decay comes before the update, and m is rounded to
// the nearest code for either sign (bitsandbytes moves a negative m that would become 0 one code down). If
// a gradient or its square is not finite, the element keeps its weight, its moments are only rounded
// again, and the gradient is counted (Optimizer::non_finite_gradients).
//
// The blocks of a scattered shard (tensor parallelism) may be split between ranks. These ranks first
// combine the largest magnitudes of the new m and v, which costs a second computation of them, and every
// rank holds the scales of all blocks.
//
// State: m8, v8 (n) u8, m_absmax, v_absmax (n / 256, rounded up) f32; 2 + 8 / 256 bytes per parameter.
#pragma once

#include <array>
#include <memory>

#include "ingot/optim/rule.h"
#include "ingot/optim/rules/adamw.h"

namespace ingot {

class AdamW8bit : public UpdateRule {
 public:
  static constexpr const char* kName = "adamw8bit";
  using Options = AdamW::Options;
  static constexpr int64_t kBlock = 256, kSmallest = 4096;

  explicit AdamW8bit(const Options& options);

  std::vector<StateSpec> state(const OptimParam& param) const override;
  RuleNeeds needs(const OptimParam& param) const override;
  size_t scratch_bytes(const OptimParam& param) const override;
  void reduce(const ParamUpdate& update, int order, Arena& scratch, Stream& stream) const override;
  void update(std::span<const ParamUpdate> updates, Arena& scratch, Stream& stream) const override;

  // In builds with CUDA (optim/rules/cuda_adamw_8bit.cu). The device does not count the gradients that it
  // skips: they make the norm infinite, so no update follows.
  static std::unique_ptr<UpdateRule> make_on_device(const Options& options);

 protected:
  Options options_;

 private:
  RangeTotals update_range(const ParamState& p, Range range, const RuleStep& step) const;
  // scales_before (2 * blocks) f32: those of m, then those of v.
  RangeTotals update_scattered(const ParamState& p, Range range, const RuleStep& step,
                               const Tensor& scales_before) const;

  std::array<float, 256> signed_map_, unsigned_map_;
};

}  // namespace ingot
