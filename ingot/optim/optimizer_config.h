// What a configuration says about optimizers: the rule of all parameters, and groups of parameters that are
// treated otherwise. Plain data; optim/rules/all_rules.h knows each rule's defaults, optim/parameter_groups.h who is in
// which group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ingot/optim/rule.h"

namespace ingot {

// A rule and its numbers, as far as they are given; the rest is the rule's own default.
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

// Parameters of some roles, or whose names match a pattern, or both where both are given. A group without a
// kind, or of the base's, starts from the base's numbers; one of another kind from that kind's defaults.
struct GroupConfig {
  std::vector<ParamRole> roles = {};    // empty: any
  std::vector<std::string> match = {};  // patterns with * and ?; empty: any
  RuleConfig rule = {};
  std::optional<double> lr = {};        // in place of the base's; keeps its ratio to it under a schedule
  std::optional<double> lr_scale = {};  // or times the base's
};

struct OptimizerConfig {
  double lr = 1e-3;
  double grad_clip = 1.0;                             // global norm; 0: off
  double ema = 0;                                     // decay of the weights' moving average; 0: none is kept
  RuleConfig rule = {.kind = OptimizerKind::kAdamW};  // of every parameter that no group takes
  std::vector<GroupConfig> groups = {};               // the first that takes a parameter has it

  // Throws a kUsage error "optimizer.lr must ..." or "optimizer.group 2: lr must ...".
  void validate() const;
};

// The numbers of a rule: `given` over `base` (if it is of the same kind) over the kind's defaults.
RuleParams resolve(const RuleConfig& given, const RuleConfig& base);

}  // namespace ingot
