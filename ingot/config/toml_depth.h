// Finds how deep a TOML text nests before a parser builds the tables: toml++ limits nested values but not
// dotted keys, and it frees its tables recursively.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ingot {

inline constexpr int64_t kMaxTomlDepth = 256;

// Returns the first line on which tables, arrays and the components of dotted keys nest deeper than
// kMaxTomlDepth, or nullopt. The text need not be valid TOML.
std::optional<int64_t> too_deep_toml_line(std::string_view text);

}  // namespace ingot
