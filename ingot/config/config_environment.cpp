#include "ingot/config/config_environment.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ingot/config/config_keys.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

constexpr std::array<std::string_view, 4> kMachineKeys{"train.device", "train.threads", "data.workers",
                                                       "data.prefetch"};

// "train.device" is INGOT_TRAIN_DEVICE.
std::string variable_of(std::string_view key) {
  std::string name = "INGOT_";
  for (const char c : key)
    name += c == '.' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

}  // namespace

void add_environment(ConfigBuilder& builder) {
  for (const ConfigKey& key : config_keys()) {
    const std::string variable = variable_of(key.name);
    const char* value = std::getenv(variable.c_str());
    if (!value || !*value) continue;
    if (std::ranges::find(kMachineKeys, key.name) == kMachineKeys.end())
      fail(ErrorKind::kUsage,
           "{}: the environment sets train.device, train.threads, data.workers and data.prefetch only; give "
           "--set {}={}",
           variable, key.name, value);
    builder.add_override(key.name + "=" + value, variable);
  }
}

}  // namespace ingot
