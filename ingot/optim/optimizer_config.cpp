#include "ingot/optim/optimizer_config.h"

#include "ingot/core/error.h"
#include "ingot/optim/rules/all_rules.h"

namespace ingot {
namespace {

constexpr const char* kUsualRule = "adamw";  // for a configuration that names none

void check_limits(const GivenOptions& given, const std::string& prefix) {
  for (const RuleOption& option : all_options())
    if (const OptionValue* value = given.find(option.info.key)) check_limit(option.info, *value, prefix);
}

// A group is written for one rule, so a key that the rule does not read is an error.
void require_options_of_rule(const GivenOptions& given, const RuleEntry& entry, const std::string& prefix) {
  for (const RuleOption& option : all_options()) {
    const std::string_view key = option.info.key;
    if (!given.find(key) || entry.find(key)) continue;
    std::string readable;
    for (const RuleOption& own : entry.options)
      readable += fmt::format("{}{}", readable.empty() ? "" : ", ", own.info.key);
    fail(ErrorKind::kUsage, "{}{} is no key of {}, which reads {}", prefix, key, entry.name, readable);
  }
}

}  // namespace

const RuleEntry& resolve_rule(const RuleConfig& group, const RuleConfig& base) {
  return rule_entry(group.kind.value_or(base.kind.value_or(kUsualRule)));
}

GivenOptions resolve_options(const RuleConfig& group, const RuleConfig& base) {
  GivenOptions options = group.options;
  if (&resolve_rule(group, base) == &resolve_rule(base, base)) options.add_missing(base.options);
  return options;
}

void OptimizerConfig::validate() const {
  const auto require = [](bool holds, const std::string& key, const char* rule, double value) {
    if (!holds) fail(ErrorKind::kUsage, "{} must {}, got {}", key, rule, value);
  };
  require(lr > 0, "optimizer.lr", "be above 0", lr);
  require(grad_clip >= 0, "optimizer.grad_clip", "not be negative (0 is off)", grad_clip);
  require(ema >= 0 && ema < 1, "optimizer.ema", "lie in [0, 1)", ema);
  static_cast<void>(resolve_rule(rule, rule));  // throws if there is no such rule
  check_limits(rule.options, "optimizer.");
  for (size_t i = 0; i < groups.size(); ++i) {
    const GroupConfig& group = groups[i];
    const std::string prefix = fmt::format("optimizer.group {}: ", i + 1);
    if (group.roles.empty() && group.match.empty())
      fail(ErrorKind::kUsage, "{}roles or match must say which parameters it takes", prefix);
    if (group.lr && group.lr_scale)
      fail(ErrorKind::kUsage, "{}lr and lr_scale are both given; unset one", prefix);
    require(group.lr.value_or(1) > 0, prefix + "lr", "be above 0", group.lr.value_or(1));
    require(group.lr_scale.value_or(1) > 0, prefix + "lr_scale", "be above 0", group.lr_scale.value_or(1));
    require_options_of_rule(group.rule.options, resolve_rule(group.rule, rule), prefix);
    check_limits(group.rule.options, prefix);
  }
}

}  // namespace ingot
