// How deep a TOML text nests, found before a parser builds tables that deep: toml++ bounds nested values, but
// not dotted keys, and frees its tables by recursion.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ingot {

inline constexpr int64_t kMaxTomlDepth = 256;

// The first line on which tables, arrays and the parts of dotted keys nest deeper than kMaxTomlDepth. The
// text need not be TOML.
std::optional<int64_t> too_deep_toml_line(std::string_view text);

}  // namespace ingot
