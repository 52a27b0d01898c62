#include "ingot/config/idle_settings.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

#include "ingot/config/config_keys.h"

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

}  // namespace

std::vector<std::string> idle_settings(const RunConfig& config) {
  std::vector<std::string> found;
  for (const ConfigKey& key : config_keys()) {
    const double value = number_of(key, config);
    if (!std::isfinite(value) || value == 0) continue;
    const std::string setting = fmt::format("{} = {}", key.name, value);
    const double size = std::abs(value);
    if (const auto single = static_cast<float>(size); single == 0 || std::isinf(single))
      found.push_back(
          fmt::format("{} is {} in f32, in which it is used", setting, single == 0 ? "0" : "infinite"));
    else if (key.leaf() == "lr" && size < kSmallestRate)
      found.push_back(setting + ": a step changes no weight");
    else if (key.name == "optimizer.grad_clip" && size < kSmallestClip)
      found.push_back(setting + ": the clipped gradients are nearly 0");
    else if (key.leaf().ends_with("eps") && size > kLargestEps)
      found.push_back(setting + ": what is divided by it is nearly 0");
    else if (key.name.starts_with("precision.loss_scale") && config.precision.compute == DType::f16 &&
             !key.name.ends_with("interval") && size < kSmallestScale)
      found.push_back(setting + ": gradients in f16 become 0");
  }
  return found;
}

}  // namespace ingot
