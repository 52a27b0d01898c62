// Presets: the files configs/*.toml, built into the program.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace ingot {

struct Preset {
  std::string_view name;  // "demo"
  std::string_view toml;  // the file's text
};

std::span<const Preset> presets();  // in order of their names

std::optional<Preset> find_preset(std::string_view name);

// What the preset is for: the comment on its first line.
std::string_view preset_summary(const Preset& preset);

}  // namespace ingot
