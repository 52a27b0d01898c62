// Parses numbers as people write them in a configuration: 512k, 0.5M, 1_000; 90s, 2m, 1h30m.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// Parses a whole number with an optional unit, in the same way for every key and option. k, M, G, T are
// powers of 1000; Ki, Mi, Gi, Ti are powers of 1024. A B (bytes) may follow any of them but not a bare
// number, because many readers take 7B for 7 billion. '_' may separate digits, and a fraction must give a
// whole number ("0.5M"). Returns nullopt for anything else and for values that do not fit into 64 bits.
std::optional<int64_t> parse_count(std::string_view text);

// Returns what a text that parse_count() refuses may mean: {"7G"} for "7B" and "7b", {"2M"} for "2m".
std::vector<std::string> nearest_counts(std::string_view text);

// Parses a duration to seconds: a sum of numbers with the units d, h, m, s, ms in descending order
// ("1h30m", "90s", "1.5m"), or a bare number of seconds. Returns nullopt for anything else.
std::optional<double> parse_duration_s(std::string_view text);

// Formats a duration: "1h30m", "1m30s" for 90 seconds, "0.5s", "0s".
std::string duration_text(double seconds);

}  // namespace ingot
