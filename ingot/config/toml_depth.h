// Guards the parser of TOML, which takes four times the bytes of a text, limits nested values but not dotted
// keys, and frees its tables recursively.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

inline constexpr int64_t kMaxTomlDepth = 256;
inline constexpr int64_t kMaxTomlBytes = int64_t{16} << 20;

// Reads a TOML file. Throws a kUsage error if it cannot be read or has more than kMaxTomlBytes.
std::string read_toml_file(const std::filesystem::path& file);

// Returns the first line on which tables, arrays and the components of dotted keys nest deeper than
// kMaxTomlDepth, or nullopt. The text need not be valid TOML.
std::optional<int64_t> too_deep_toml_line(std::string_view text);

}  // namespace ingot
