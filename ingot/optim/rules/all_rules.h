// The table of update rules, with one entry per type of the list (optim/rules/rule_list.h). All look-ups of a
// rule by name, and of options by key, use it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "ingot/optim/rule.h"
#include "ingot/optim/rule_options.h"

namespace ingot {

// The option of a rule that a momentum schedule drives: "momentum" if the rule has it, else "beta1".
enum class MomentumMeaning { kNone, kMomentum, kBeta1 };

// The configured momentum of a rule, or its beta1: linear from `from` to `to` over `steps`.
struct MomentumRamp {
  double from = 0, to = 0;
  int64_t steps = 0;
  double at(int64_t t) const;  // t: 1 at the first update
};

struct RuleEntry {
  std::string_view name;            // in configurations, such as "adamw"
  std::vector<RuleOption> options;  // in the order of the rule's table
  bool is_matrix_rule = false;      // true if `make` makes a MatrixRule
  // The rule for parameters on a device.
  std::unique_ptr<UpdateRule> (*make)(const GivenOptions& given, Device device) = nullptr;

  const RuleOption* find(std::string_view key) const;  // null if the rule has no such option
  // Returns the value of an option, given or default; 0 if the rule has no such option.
  double number(const GivenOptions& given, std::string_view key) const;
  MomentumMeaning momentum_meaning() const;
  MomentumRamp momentum(const GivenOptions& given) const;
};

const std::vector<RuleEntry>& rules();
const RuleEntry& rule_entry(std::string_view name);  // throws a kUsage error if there is no such rule

// The options of all rules, one per key, in the order in which configurations list them. The default is that
// of the first rule that has the option.
const std::vector<RuleOption>& all_options();

}  // namespace ingot
