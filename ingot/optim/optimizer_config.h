// The optimizer's configuration as plain data: the rule of all parameters, and groups of parameters
// that differ. optim/rules/all_rules.h has each rule's defaults, optim/parameter_groups.h assigns
// parameters to groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ingot/optim/rule.h"

namespace ingot {

// A rule and the hyperparameters that were given; the others have the rule's defaults.
struct RuleConfig {
  std::optional<OptimizerKind> kind = {};
  std::optional<double> beta1 = {}, beta2 = {}, eps = {}, weight_decay = {};
  std::optional<double> momentum = {}, momentum_start = {};
  std::optional<int64_t> momentum_warmup = {};
  std::optional<bool> nesterov = {}, relative_step = {};
  std::optional<double> update_clip = {};
  std::optional<NewtonSchulzKind> newton_schulz = {};
  std::optional<DType> newton_schulz_dtype = {};
  std::optional<bool> normuon = {}, cautious_decay = {}, split_fused = {};
};

// A group: the parameters of some roles, or whose names match a pattern, or both if both are given. A
// group without a kind, or of the base rule's kind, starts from the base's values; one of another kind
// starts from that kind's defaults.
struct GroupConfig {
  std::vector<ParamRole> roles = {};    // empty: any
  std::vector<std::string> match = {};  // patterns with * and ?; empty: any
  RuleConfig rule = {};
  std::optional<double> lr = {};        // replaces the base's; its ratio to the base's holds under a schedule
  std::optional<double> lr_scale = {};  // multiplies the base's instead
};

struct OptimizerConfig {
  double lr = 1e-3;
  double grad_clip = 1.0;                             // global norm; 0: off
  double ema = 0;                                     // decay of the weights' moving average; 0: no average
  RuleConfig rule = {.kind = OptimizerKind::kAdamW};  // for parameters in no group
  std::vector<GroupConfig> groups = {};               // a parameter is in the first group that matches

  // Throws a kUsage error "optimizer.lr must ..." or "optimizer.group 2: lr must ...".
  void validate() const;
};

// Merges the hyperparameters of a rule: `given` over `base` (if it is of the same kind) over the
// kind's defaults.
RuleParams resolve(const RuleConfig& given, const RuleConfig& base);

}  // namespace ingot
