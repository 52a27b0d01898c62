// The table of update rules: one line each. Whatever asks for a rule by kind or by name asks here.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "ingot/optim/rule.h"

namespace ingot {

// What a momentum that changes over a run stands for in a rule.
enum class MomentumMeaning { kNone, kMomentum, kBeta1 };

struct RuleEntry {
  OptimizerKind kind;
  std::string_view name;               // in configurations: "adamw"
  std::vector<std::string_view> keys;  // of the configuration that it reads, beside kind and lr
  MomentumMeaning momentum;
  RuleParams defaults;
  std::unique_ptr<UpdateRule> (*make)(const RuleParams& params);
  // The same update of a whole parameter on a CUDA device, with totals (optim/cuda_update.h) or without; in
  // builds with CUDA. scratch has what device_scratch_bytes says, null: nothing.
  void (*update_on_device)(const ParamState& p, const RuleParams& params, const RuleStep& step,
                           const Tensor& totals, Arena& scratch, Stream& stream);
  size_t (*device_scratch_bytes)(const OptimParam& param, const RuleParams& params) = nullptr;
};

const std::vector<RuleEntry>& rules();
const RuleEntry& rule_entry(OptimizerKind kind);

}  // namespace ingot
