#include "ingot/config/optimizer_keys.h"

#include <algorithm>
#include <utility>

#include "ingot/config/config_key_kinds.h"
#include "ingot/optim/parameter_groups.h"
#include "ingot/optim/rules/all_rules.h"

namespace ingot {
namespace {

using enum ResumeClass;

using key_kinds::choice;
using key_kinds::choices;
using key_kinds::float_text;
using key_kinds::kMany;
using key_kinds::number;
using key_kinds::or_auto;
using key_kinds::read_choice;
using key_kinds::read_flag;
using key_kinds::read_number;
using key_kinds::read_whole;
using key_kinds::rule_or_word;
using key_kinds::texts;
using key_kinds::whole_rule;

constexpr const char* kAuto = "auto";

std::vector<std::pair<std::string, std::string>> rule_names() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const RuleEntry& entry : rules()) names.emplace_back(entry.name, entry.name);
  return names;
}

std::string to_toml(const OptionValue& value) {
  if (const auto* is_on = std::get_if<bool>(&value)) return *is_on ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return fmt::format("{}", *whole);
  if (const auto* real = std::get_if<double>(&value)) return float_text(*real);
  return toml_string(std::get<std::string>(value));
}

// Returns the defaults of the rules that have an option: "0.95, lion 0.99, muon 0.9".
std::string defaults_text(std::string_view key) {
  const auto shown = [](const OptionValue& value) {
    if (const auto* real = std::get_if<double>(&value)) return fmt::format("{:.8g}", *real);
    const auto* name = std::get_if<std::string>(&value);
    return name ? *name : to_toml(value);
  };
  std::string text;
  const OptionValue* first = nullptr;
  for (const RuleEntry& entry : rules()) {
    const RuleOption* option = entry.find(key);
    if (!option) continue;
    if (!first)
      text = shown(option->default_value);
    else if (option->default_value != *first)
      text += fmt::format(", {} {}", entry.name, shown(option->default_value));
    if (!first) first = &option->default_value;
  }
  return text;
}

int64_t least(const OptionInfo& option) { return option.limit == Limit::kPositive ? 1 : 0; }

std::string rule_of(const RuleOption& option) {
  if (std::holds_alternative<bool>(option.default_value)) return "true or false";
  if (std::holds_alternative<int64_t>(option.default_value)) return whole_rule(least(option.info), kMany);
  if (std::holds_alternative<double>(option.default_value)) return "a number";
  return fmt::format("one of {}", list_names(option.values));
}

OptionValue read_option(const std::string& name, const RuleOption& option, const ConfigValue& value) {
  if (std::holds_alternative<bool>(option.default_value)) return read_flag(name, value);
  if (std::holds_alternative<int64_t>(option.default_value))
    return read_whole(name, least(option.info), kMany, value);
  if (std::holds_alternative<double>(option.default_value)) return read_number(name, value);
  return option.values[read_choice(name, option.values, value)];
}

// Returns the key of an option. rule_config returns the RuleConfig of a RunConfig.
template <typename RuleOf>
ConfigKey option_key(const std::string& name, const RuleOption& option, RuleOf rule_config) {
  const std::string key(option.info.key);
  return {name,
          option.info.shapes_state ? kState : kCourse,
          rule_or_word(rule_of(option), kAuto),
          fmt::format("{}; auto: {}", option.info.text, defaults_text(key)),
          std::holds_alternative<std::string>(option.default_value),
          [=](RunConfig& config, const ConfigValue& value) {
            const auto* text = std::get_if<std::string>(&value);
            GivenOptions& given = rule_config(config).options;
            if (text && *text == kAuto)
              given.reset(key);
            else
              given.set(key, read_option(name, option, value));
          },
          [=](const RunConfig& config) {
            const OptionValue* value = rule_config(config).options.find(key);
            return value ? to_toml(*value) : toml_string(kAuto);
          }};
}

template <typename RuleOf>
void add_option_keys(std::vector<ConfigKey>& keys, const std::string& prefix, RuleOf rule_config) {
  for (const RuleOption& option : all_options())
    keys.push_back(option_key(prefix + std::string(option.info.key), option, rule_config));
}

std::vector<std::pair<std::string, ParamRole>> role_names() {
  std::vector<std::pair<std::string, ParamRole>> names;
  for (ParamRole role : {ParamRole::kEmbedding, ParamRole::kPosition, ParamRole::kMatrix, ParamRole::kHead,
                         ParamRole::kNorm, ParamRole::kBias, ParamRole::kScalar})
    names.emplace_back(role_name(role), role);
  return names;
}

// Returns "kind = \"muon\"" and so on for the keys that the group sets.
std::vector<std::string> settings_of_group(const GroupConfig& group) {
  RunConfig one;
  one.optimizer.groups = {group};
  std::vector<std::string> settings;
  for (const ConfigKey& key : optimizer_group_keys())
    if (const std::string value = key.toml(one); value != toml_string(kAuto) && value != "[]")
      settings.push_back(fmt::format("{} = {}", key.name.substr(kOptimizerGroup.size() + 1), value));
  return settings;
}

}  // namespace

void add_optimizer_keys(std::vector<ConfigKey>& keys) {
  using O = OptimizerConfig;
  const auto optimizer = &RunConfig::optimizer;
  keys.push_back(choice<std::string>("optimizer.kind", kState, rule_names(), "the update rule", optimizer,
                                     &O::rule, &RuleConfig::kind));
  keys.push_back(number("optimizer.lr", kCourse, "peak learning rate", optimizer, &O::lr));
  add_option_keys(
      keys, "optimizer.", [](auto& config) -> auto& { return config.optimizer.rule; });
  keys.push_back(number("optimizer.grad_clip", kCourse, "largest global gradient norm; 0: off", optimizer,
                        &O::grad_clip));
  keys.push_back(number("optimizer.ema", kState,
                        "decay of a moving average of the weights, which evaluations use; 0: none", optimizer,
                        &O::ema));
}

const std::vector<ConfigKey>& optimizer_group_keys() {
  static const std::vector<ConfigKey> keys = [] {
    using G = GroupConfig;
    const auto group = [](auto& config) -> auto& { return config.optimizer.groups.back(); };
    std::vector<ConfigKey> all;
    all.push_back(choices<ParamRole>("optimizer.group.roles", kState, role_names(),
                                     "roles of the parameters in the group; not given: all", group,
                                     &G::roles));
    all.push_back(texts("optimizer.group.match", kState,
                        "patterns of parameter names, with * and ?; not given: all", group, &G::match));
    all.push_back(or_auto(choice<std::string>("optimizer.group.kind", kState, rule_names(),
                                              "the update rule; auto: the one of [optimizer]", group,
                                              &G::rule, &RuleConfig::kind),
                          group, &G::rule, &RuleConfig::kind));
    all.push_back(or_auto(
        number("optimizer.group.lr", kState, "peak learning rate; auto: that of [optimizer]", group, &G::lr),
        group, &G::lr));
    all.push_back(or_auto(number("optimizer.group.lr_scale", kState,
                                 "learning rate as a multiple of that of [optimizer]", group, &G::lr_scale),
                          group, &G::lr_scale));
    add_option_keys(
        all, "optimizer.group.", [](auto& config) -> auto& { return config.optimizer.groups.back().rule; });
    return all;
  }();
  return keys;
}

const ConfigKey* find_optimizer_group_key(std::string_view name) {
  const auto& keys = optimizer_group_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

std::vector<std::string> optimizer_group_key_names() {
  std::vector<std::string> names;
  for (const ConfigKey& key : optimizer_group_keys()) names.push_back(key.name);
  return names;
}

std::string optimizer_groups_toml(const OptimizerConfig& optimizer) {
  if (optimizer.groups.empty()) return "group = []\n";  // overrides the preset's groups
  std::string text;
  for (const GroupConfig& group : optimizer.groups) {
    text += fmt::format("\n[[{}]]\n", kOptimizerGroup);
    for (const std::string& setting : settings_of_group(group)) text += setting + "\n";
  }
  return text;
}

std::string optimizer_groups_value(const OptimizerConfig& optimizer) {
  std::vector<std::string> tables;
  for (const GroupConfig& group : optimizer.groups)
    tables.push_back("{" + list_names(settings_of_group(group)) + "}");
  return "[" + list_names(tables) + "]";
}

}  // namespace ingot
