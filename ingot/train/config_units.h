// Numbers as people write them in a configuration: 512k, 0.5M, 1_000; 90s, 2m, 1h30m.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

// A whole number with an optional unit: k, M, G are powers of 1000, Ki, Mi, Gi of 1024, and a B may follow
// them (bytes). '_' may separate digits, a fraction must come out whole ("0.5M"). nullopt for anything else,
// and for what does not fit 64 bits.
std::optional<int64_t> parse_count(std::string_view text);

// Seconds: a sum of numbers with units d, h, m, s, ms in falling order ("1h30m", "90s", "1.5m"), or a bare
// number of seconds. nullopt for anything else.
std::optional<double> parse_duration_s(std::string_view text);

// The same back: "1h30m", "90s" as "1m30s", "0.5s", "0s".
std::string duration_text(double seconds);

}  // namespace ingot
