// The optimizer's configuration as plain data: the rule of all parameters, and groups of parameters
// that differ. optim/rules/all_rules.h has each rule's defaults, optim/parameter_groups.h assigns
// parameters to groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ingot/core/param_role.h"
#include "ingot/optim/rule_options.h"

namespace ingot {

struct RuleEntry;

// A rule and the options that were given; the others have the rule's defaults.
struct RuleConfig {
  std::optional<std::string> kind = {};  // name of a rule, such as "adamw" (optim/rules/all_rules.h)
  GivenOptions options = {};
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
  double grad_clip = 1.0;                // global norm; 0: off
  double ema = 0;                        // decay of the weights' moving average; 0: no average
  RuleConfig rule = {.kind = "adamw"};   // for parameters in no group
  std::vector<GroupConfig> groups = {};  // a parameter is in the first group that matches

  // Throws a kUsage error "optimizer.lr must ..." or "optimizer.group 2: lr must ...".
  void validate() const;
};

// The rule of a group: the one that it names, or that of `base`.
const RuleEntry& resolve_rule(const RuleConfig& group, const RuleConfig& base);

// The options that are given for a group: its own, and those of `base` if both have the same rule.
GivenOptions resolve_options(const RuleConfig& group, const RuleConfig& base);

}  // namespace ingot
