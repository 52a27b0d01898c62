// Numbers as people write them in a configuration: 512k, 0.5M, 1_000; 90s, 2m, 1h30m.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// A whole number with an optional unit, the same for every key and every option: k, M, G, T are powers of
// 1000; Ki, Mi, Gi, Ti are powers of 1024; a B may follow any of them (bytes), but does not stand alone,
// because 7B is 7 billion to many readers. '_' may separate digits, a fraction must come out whole ("0.5M").
// nullopt for anything else, and for what does not fit 64 bits.
std::optional<int64_t> parse_count(std::string_view text);

// What a text that parse_count() refuses may have been meant to say: {"7G"} for "7B" and "7b", {"2M"} for
// "2m".
std::vector<std::string> nearest_counts(std::string_view text);

// Seconds: a sum of numbers with units d, h, m, s, ms in falling order ("1h30m", "90s", "1.5m"), or a bare
// number of seconds. nullopt for anything else.
std::optional<double> parse_duration_s(std::string_view text);

// The same back: "1h30m", "90s" as "1m30s", "0.5s", "0s".
std::string duration_text(double seconds);

}  // namespace ingot
