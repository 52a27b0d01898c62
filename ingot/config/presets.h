// Presets are the files configs/*.toml, built into the program.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace ingot {

struct Preset {
  std::string_view name;  // "demo"
  std::string_view toml;  // text of the file
};

std::span<const Preset> presets();  // sorted by name

std::optional<Preset> find_preset(std::string_view name);

// Returns the preset's purpose: the comment on its first line.
std::string_view preset_summary(const Preset& preset);

}  // namespace ingot
