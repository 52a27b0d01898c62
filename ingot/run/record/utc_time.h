// Times as ISO 8601 in UTC: "2026-11-23T04:02:58Z".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ingot {

int64_t unix_now_s();  // seconds since 1970
std::string utc_text(int64_t unix_s);
std::optional<int64_t> parse_utc(const std::string& text);  // nullopt for any other text

}  // namespace ingot
