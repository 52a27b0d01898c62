// The table of update rules, with one entry per rule. All look-ups of a rule by kind or by name use it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "ingot/optim/rule.h"

namespace ingot {

// The hyperparameter of a rule that a momentum schedule drives.
enum class MomentumMeaning { kNone, kMomentum, kBeta1 };

struct RuleEntry {
  OptimizerKind kind;
  std::string_view name;               // in configurations, such as "adamw"
  std::vector<std::string_view> keys;  // configuration keys that the rule reads, besides kind and lr
  MomentumMeaning momentum;
  RuleParams defaults;
  std::unique_ptr<UpdateRule> (*make)(const RuleParams& params);
  // Makes the same update of a whole parameter on a CUDA device, with totals (optim/cuda_update.h) or
  // without, in builds with CUDA. scratch has device_scratch_bytes; a null function means 0 bytes.
  void (*update_on_device)(const ParamState& p, const RuleParams& params, const RuleStep& step,
                           const Tensor& totals, Arena& scratch, Stream& stream);
  size_t (*device_scratch_bytes)(const OptimParam& param, const RuleParams& params) = nullptr;
};

const std::vector<RuleEntry>& rules();
const RuleEntry& rule_entry(OptimizerKind kind);

}  // namespace ingot
