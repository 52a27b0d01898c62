#include "ingot/optim/optimizer_config.h"

#include <algorithm>

#include "ingot/core/error.h"
#include "ingot/optim/rules/all_rules.h"

namespace ingot {
namespace {

void overlay(RuleParams& params, const RuleConfig& given) {
  params.beta1 = given.beta1.value_or(params.beta1);
  params.beta2 = given.beta2.value_or(params.beta2);
  params.eps = given.eps.value_or(params.eps);
  params.weight_decay = given.weight_decay.value_or(params.weight_decay);
  params.momentum = given.momentum.value_or(params.momentum);
  params.momentum_start = given.momentum_start.value_or(params.momentum_start);
  params.momentum_warmup = given.momentum_warmup.value_or(params.momentum_warmup);
  params.has_nesterov = given.nesterov.value_or(params.has_nesterov);
  params.has_relative_step = given.relative_step.value_or(params.has_relative_step);
  params.update_clip = given.update_clip.value_or(params.update_clip);
  params.newton_schulz = given.newton_schulz.value_or(params.newton_schulz);
  params.newton_schulz_dtype = given.newton_schulz_dtype.value_or(params.newton_schulz_dtype);
  params.has_variance_reduction = given.normuon.value_or(params.has_variance_reduction);
  params.has_cautious_decay = given.cautious_decay.value_or(params.has_cautious_decay);
  params.splits_fused = given.split_fused.value_or(params.splits_fused);
}

void validate_rule(const RuleParams& p, const std::string& prefix) {
  const auto require = [&](bool holds, const char* key, const char* rule, double value) {
    if (!holds) fail(ErrorKind::kUsage, "{}{} must {}, got {}", prefix, key, rule, value);
  };
  require(p.beta1 >= 0 && p.beta1 < 1, "beta1", "lie in [0, 1)", p.beta1);
  require(p.beta2 >= 0 && p.beta2 < 1, "beta2", "lie in [0, 1)", p.beta2);
  require(p.eps > 0, "eps", "be above 0", p.eps);
  require(p.weight_decay >= 0, "weight_decay", "not be negative", p.weight_decay);
  require(p.momentum >= 0 && p.momentum < 1, "momentum", "lie in [0, 1)", p.momentum);
  require(p.momentum_start >= 0 && p.momentum_start < 1, "momentum_start", "lie in [0, 1)", p.momentum_start);
  require(p.update_clip > 0, "update_clip", "be above 0", p.update_clip);
}

// The keys that a configuration sets, by their names in it.
std::vector<std::string_view> given_keys(const RuleConfig& given) {
  std::vector<std::string_view> keys;
  const auto add = [&](bool is_given, std::string_view key) {
    if (is_given) keys.push_back(key);
  };
  add(given.beta1.has_value(), "beta1");
  add(given.beta2.has_value(), "beta2");
  add(given.eps.has_value(), "eps");
  add(given.weight_decay.has_value(), "weight_decay");
  add(given.momentum.has_value(), "momentum");
  add(given.momentum_start.has_value(), "momentum_start");
  add(given.momentum_warmup.has_value(), "momentum_warmup");
  add(given.nesterov.has_value(), "nesterov");
  add(given.relative_step.has_value(), "relative_step");
  add(given.update_clip.has_value(), "update_clip");
  add(given.newton_schulz.has_value(), "newton_schulz");
  add(given.newton_schulz_dtype.has_value(), "newton_schulz_dtype");
  add(given.normuon.has_value(), "normuon");
  add(given.cautious_decay.has_value(), "cautious_decay");
  add(given.split_fused.has_value(), "split_fused");
  return keys;
}

// A group is written for one rule, so a key that the rule does not read is an error.
void require_keys_of_rule(const RuleConfig& given, OptimizerKind kind, const std::string& prefix) {
  const RuleEntry& entry = rule_entry(kind);
  for (std::string_view key : given_keys(given)) {
    if (std::find(entry.keys.begin(), entry.keys.end(), key) != entry.keys.end()) continue;
    std::string readable;
    for (std::string_view k : entry.keys) readable += fmt::format("{}{}", readable.empty() ? "" : ", ", k);
    fail(ErrorKind::kUsage, "{}{} is no key of {}, which reads {}", prefix, key, entry.name, readable);
  }
}

}  // namespace

RuleParams resolve(const RuleConfig& given, const RuleConfig& base) {
  const OptimizerKind base_kind = base.kind.value_or(OptimizerKind::kAdamW);
  const OptimizerKind kind = given.kind.value_or(base_kind);
  RuleParams params = rule_entry(kind).defaults;
  if (kind == base_kind) overlay(params, base);
  overlay(params, given);
  return params;
}

void OptimizerConfig::validate() const {
  const auto require = [](bool holds, const std::string& key, const char* rule, double value) {
    if (!holds) fail(ErrorKind::kUsage, "{} must {}, got {}", key, rule, value);
  };
  require(lr > 0, "optimizer.lr", "be above 0", lr);
  require(grad_clip >= 0, "optimizer.grad_clip", "not be negative (0 is off)", grad_clip);
  require(ema >= 0 && ema < 1, "optimizer.ema", "lie in [0, 1)", ema);
  validate_rule(resolve(rule, rule), "optimizer.");
  for (size_t i = 0; i < groups.size(); ++i) {
    const GroupConfig& group = groups[i];
    const std::string prefix = fmt::format("optimizer.group {}: ", i + 1);
    if (group.roles.empty() && group.match.empty())
      fail(ErrorKind::kUsage, "{}roles or match must say which parameters it takes", prefix);
    if (group.lr && group.lr_scale)
      fail(ErrorKind::kUsage, "{}lr and lr_scale are both given; unset one", prefix);
    require(group.lr.value_or(1) > 0, prefix + "lr", "be above 0", group.lr.value_or(1));
    require(group.lr_scale.value_or(1) > 0, prefix + "lr_scale", "be above 0", group.lr_scale.value_or(1));
    require_keys_of_rule(group.rule, group.rule.kind.value_or(rule.kind.value_or(OptimizerKind::kAdamW)),
                         prefix);
    validate_rule(resolve(group.rule, rule), prefix);
  }
}

}  // namespace ingot
