#include "ingot/config/presets.h"

#include <algorithm>

namespace ingot {

// cmake/IngotEmbedded.cmake generates presets() from configs/*.toml.

std::optional<Preset> find_preset(std::string_view name) {
  const auto all = presets();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Preset& p) { return p.name == name; });
  if (found == all.end()) return std::nullopt;
  return *found;
}

std::string_view preset_summary(const Preset& preset) {
  std::string_view line = preset.toml.substr(0, preset.toml.find('\n'));
  if (!line.starts_with("# ")) return {};
  return line.substr(2);
}

}  // namespace ingot
