#include "ingot/run/record/utc_time.h"

#include <array>
#include <chrono>
#include <ctime>

namespace ingot {
namespace {
constexpr const char* kUtcFormat = "%Y-%m-%dT%H:%M:%SZ";
}  // namespace

int64_t unix_now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string utc_text(int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm utc{};
  std::array<char, 64> text{};
  if (!gmtime_r(&time, &utc) || std::strftime(text.data(), text.size(), kUtcFormat, &utc) == 0) return "";
  return text.data();
}

std::optional<int64_t> parse_utc(const std::string& text) {
  std::tm utc{};
  const char* end = strptime(text.c_str(), kUtcFormat, &utc);
  if (!end) return std::nullopt;
  const auto unix_s = static_cast<int64_t>(timegm(&utc));
  // strptime() also reads "2026-2-30T1:2:61Z", and timegm() makes another time of it.
  if (utc_text(unix_s) != text) return std::nullopt;
  return unix_s;
}

}  // namespace ingot
