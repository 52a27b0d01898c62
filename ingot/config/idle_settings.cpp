#include "ingot/config/idle_settings.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

#include "ingot/config/config_keys.h"
#include "ingot/config/optimizer_keys.h"
#include "ingot/optim/rules/all_rules.h"

namespace ingot {
namespace {

// Beyond these a setting has no use: weights are near 0.02, and gradients of a mean loss are below 1.
constexpr double kSmallestRate = 1e-10, kSmallestClip = 1e-12, kLargestEps = 1e3;
constexpr double kSmallestScale = 0x1p-14;  // f16 has nothing below 2^-24, and gradients are near 2^-10

// Returns the value of a key that holds one number; NaN otherwise.
double number_of(const ConfigKey& key, const RunConfig& config) {
  const std::string text = key.toml(config);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' ? value : std::nan("");
}

// Returns why nothing is trained with the key's value; "" if something is.
std::string why_idle(const ConfigKey& key, double value, DType compute) {
  const double size = std::abs(value);
  if (const auto single = static_cast<float>(size); single == 0 || std::isinf(single))
    return fmt::format(" is {} in f32, in which it is used", single == 0 ? "0" : "infinite");
  const auto ends_with = [&](const char* end) { return key.name.ends_with(end); };
  if (ends_with(".lr") && size < kSmallestRate) return ": a step changes no weight";
  if (key.name == "optimizer.grad_clip" && size < kSmallestClip)
    return ": the clipped gradients are nearly 0";
  if ((ends_with(".eps") || ends_with("_eps")) && size > kLargestEps)
    return ": what is divided by it is nearly 0";
  if (key.name.starts_with("precision.loss_scale") && compute == DType::f16 && !ends_with("interval") &&
      size < kSmallestScale)
    return ": gradients in f16 become 0";
  return "";
}

void add_idle(std::vector<std::string>& found, const ConfigKey& key, const std::string& shown_name,
              const RunConfig& config, const char* effect) {
  const double value = number_of(key, config);
  if (!std::isfinite(value) || value == 0) return;
  if (const std::string why = why_idle(key, value, config.precision.compute); !why.empty())
    found.push_back(fmt::format("{} = {}{}; {}", shown_name, value, why, effect));
}

void add_idle_of_group(std::vector<std::string>& found, const RunConfig& config, size_t index) {
  const GroupConfig& group = config.optimizer.groups[index];
  const std::string label = fmt::format("optimizer.group {}: ", index + 1);
  const char* effect = "its parameters are trained little or not at all";
  RunConfig one = config;
  one.optimizer.groups = {group};
  for (const ConfigKey& key : optimizer_group_keys())
    add_idle(found, key, label + key.name.substr(kOptimizerGroup.size() + 1), one, effect);
  if (const double scale = group.lr_scale.value_or(0);
      static_cast<float>(scale) != 0 && scale * config.optimizer.lr < kSmallestRate)
    found.push_back(fmt::format("{}lr_scale = {}: a step changes no weight; {}", label, scale, effect));
  const RuleEntry& rule = resolve_rule(group.rule, config.optimizer.rule);
  for (const RuleOption& option : all_options())
    if (group.rule.options.find(option.info.key) && !rule.find(option.info.key))
      found.push_back(
          fmt::format("{}{} has no effect: {} has no such option", label, option.info.key, rule.name));
}

}  // namespace

std::vector<std::string> idle_settings(const RunConfig& config) {
  std::vector<std::string> found;
  for (const ConfigKey& key : config_keys())
    add_idle(found, key, key.name, config, "the run trains little or nothing");
  for (size_t i = 0; i < config.optimizer.groups.size(); ++i) add_idle_of_group(found, config, i);
  return found;
}

}  // namespace ingot
