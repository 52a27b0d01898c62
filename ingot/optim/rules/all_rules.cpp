#include "ingot/optim/rules/all_rules.h"

#include <algorithm>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/rules/adafactor.h"
#include "ingot/optim/rules/adam.h"
#include "ingot/optim/rules/adamw.h"
#include "ingot/optim/rules/adamw_8bit.h"
#include "ingot/optim/rules/cuda_adafactor.h"
#include "ingot/optim/rules/cuda_muon.h"
#include "ingot/optim/rules/elementwise_rule.h"
#include "ingot/optim/rules/lion.h"
#include "ingot/optim/rules/momentum.h"
#include "ingot/optim/rules/muon.h"
#include "ingot/optim/rules/sgd.h"

namespace ingot {
namespace {

template <typename Rule>
std::unique_ptr<UpdateRule> make(const RuleParams& params) {
  return std::make_unique<Rule>(params);
}

template <typename Rule>
void update_on_device([[maybe_unused]] const ParamState& p, [[maybe_unused]] const RuleParams& params,
                      [[maybe_unused]] const RuleStep& step, [[maybe_unused]] const Tensor& totals,
                      Arena& /*scratch*/, [[maybe_unused]] Stream& stream) {
  if constexpr (kHasCuda) cuda::update_elementwise(p, Rule(params, step), step, totals, stream);
}

// Small parameters have f32 states and use AdamW.
void update_8bit_on_device([[maybe_unused]] const ParamState& p, [[maybe_unused]] const RuleParams& params,
                           [[maybe_unused]] const RuleStep& step, [[maybe_unused]] const Tensor& totals,
                           [[maybe_unused]] Arena& scratch, [[maybe_unused]] Stream& stream) {
  if constexpr (kHasCuda) {
    if (p.state.front().dtype != DType::u8)
      return update_on_device<AdamW>(p, params, step, totals, scratch, stream);
    cuda::update_adamw_8bit(p, AdamW(params, step), step, totals, stream);
  }
}

void update_muon_on_device([[maybe_unused]] const ParamState& p, [[maybe_unused]] const RuleParams& params,
                           [[maybe_unused]] const RuleStep& step, [[maybe_unused]] const Tensor& totals,
                           [[maybe_unused]] Arena& scratch, [[maybe_unused]] Stream& stream) {
  if constexpr (kHasCuda) cuda::update_muon(p, params, step, totals, scratch, stream);
}

void update_adafactor_on_device([[maybe_unused]] const ParamState& p,
                                [[maybe_unused]] const RuleParams& params,
                                [[maybe_unused]] const RuleStep& step, [[maybe_unused]] const Tensor& totals,
                                [[maybe_unused]] Arena& scratch, [[maybe_unused]] Stream& stream) {
  if constexpr (kHasCuda) cuda::update_adafactor(p, params, step, totals, scratch, stream);
}

size_t adafactor_scratch_on_device([[maybe_unused]] const OptimParam& param, const RuleParams& /*params*/) {
  if constexpr (kHasCuda) return cuda::adafactor_scratch_bytes(param);
  return 0;
}

size_t muon_scratch_on_device([[maybe_unused]] const OptimParam& param,
                              [[maybe_unused]] const RuleParams& params) {
  if constexpr (kHasCuda) return cuda::muon_scratch_bytes(param, params);
  return 0;
}

}  // namespace

const std::vector<RuleEntry>& rules() {
  using enum OptimizerKind;
  using M = MomentumMeaning;
  static const std::vector<RuleEntry> table = {
      {kSgd, "sgd", {"weight_decay"}, M::kNone, {}, make<ElementwiseRule<Sgd>>, update_on_device<Sgd>},
      {kMomentum,
       "momentum",
       {"weight_decay", "momentum", "momentum_start", "momentum_warmup", "nesterov"},
       M::kMomentum,
       {},
       make<ElementwiseRule<Momentum>>,
       update_on_device<Momentum>},
      {kAdam,
       "adam",
       {"beta1", "beta2", "eps", "weight_decay"},
       M::kBeta1,
       {},
       make<ElementwiseRule<Adam>>,
       update_on_device<Adam>},
      {kAdamW,
       "adamw",
       {"beta1", "beta2", "eps", "weight_decay"},
       M::kBeta1,
       {},
       make<ElementwiseRule<AdamW>>,
       update_on_device<AdamW>},
      {kAdafactor,
       "adafactor",
       {"eps", "weight_decay", "relative_step", "update_clip"},
       M::kNone,
       {.eps = 0x1p-23},
       make<Adafactor>,
       update_adafactor_on_device,
       adafactor_scratch_on_device},
      {kLion,
       "lion",
       {"beta1", "beta2", "weight_decay"},
       M::kBeta1,
       {.beta2 = 0.99},
       make<ElementwiseRule<Lion>>,
       update_on_device<Lion>},
      {kAdamW8bit,
       "adamw8bit",
       {"beta1", "beta2", "eps", "weight_decay"},
       M::kBeta1,
       {},
       make<AdamW8bit>,
       update_8bit_on_device},
      {kMuon,
       "muon",
       {"beta2", "weight_decay", "momentum", "momentum_start", "momentum_warmup", "nesterov", "newton_schulz",
        "newton_schulz_dtype", "normuon", "cautious_decay", "split_fused"},
       M::kMomentum,
       {.beta2 = 0.9, .momentum = 0.95, .momentum_start = 0.85, .momentum_warmup = 300, .has_nesterov = true},
       make<Muon>,
       update_muon_on_device,
       muon_scratch_on_device},
  };
  return table;
}

const RuleEntry& rule_entry(OptimizerKind kind) {
  const auto& table = rules();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const RuleEntry& e) { return e.kind == kind; });
  INGOT_CHECK(found != table.end(), "rule_entry: kind {} is not in the table", static_cast<int>(kind));
  return *found;
}

}  // namespace ingot
