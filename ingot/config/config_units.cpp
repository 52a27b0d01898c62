#include "ingot/config/config_units.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace ingot {
namespace {

constexpr double kLargestCount = 9.2e18;  // just below 2^63

// Removes the number at the front of the text and returns it. '_' is allowed only between digits.
std::optional<double> take_number(std::string_view& text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string digits;
  size_t i = 0;
  for (; i < text.size(); ++i) {
    const bool is_separator =
        text[i] == '_' && i > 0 && is_digit(text[i - 1]) && i + 1 < text.size() && is_digit(text[i + 1]);
    if (is_separator) continue;
    if (!is_digit(text[i]) && text[i] != '.') break;
    digits += text[i];
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  text.remove_prefix(i);
  return value;
}

constexpr std::array<std::pair<std::string_view, double>, 5> kDurationUnits{
    {{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}, {"ms", 1e-3}}};

// Returns the index of the longest unit at the front of the text.
std::optional<size_t> duration_unit(std::string_view text) {
  std::optional<size_t> found;
  for (size_t i = 0; i < kDurationUnits.size(); ++i) {
    const std::string_view unit = kDurationUnits[i].first;
    if (text.starts_with(unit) && (!found || unit.size() > kDurationUnits[*found].first.size())) found = i;
  }
  return found;
}

}  // namespace

std::optional<int64_t> parse_count(std::string_view text) {
  const std::optional<double> number = take_number(text);
  if (!number) return std::nullopt;
  double scale = 1;
  if (!text.empty()) {
    const double base = text.size() >= 2 && text[1] == 'i' ? 1024 : 1000;
    const size_t power = std::string_view("kMGT").find(text[0] == 'K' ? 'k' : text[0]);
    if (power == std::string_view::npos) return std::nullopt;
    scale = std::pow(base, static_cast<double>(power + 1));
    text.remove_prefix(base == 1024 ? 2 : 1);
    if (!text.empty() && text != "B") return std::nullopt;
  }
  // A product such as 0.3 * 1e6 is whole except for its last bits.
  const double value = *number * scale, whole = std::nearbyint(value);
  if (whole > kLargestCount || std::abs(value - whole) > 1e-9 * std::max(1.0, whole)) return std::nullopt;
  if (scale == 1 && value != whole) return std::nullopt;
  return static_cast<int64_t>(whole);
}

std::vector<std::string> nearest_counts(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, char>, 9> kMeant{{{"B", 'G'},
                                                                     {"b", 'G'},
                                                                     {"bn", 'G'},
                                                                     {"g", 'G'},
                                                                     {"m", 'M'},
                                                                     {"mn", 'M'},
                                                                     {"mio", 'M'},
                                                                     {"t", 'T'},
                                                                     {"tn", 'T'}}};
  const size_t digits = std::min(text.find_first_not_of("0123456789._"), text.size());
  for (const auto& [unit, meant] : kMeant) {
    if (text.substr(digits) != unit) continue;
    std::string count = std::string(text.substr(0, digits)) + meant;
    if (parse_count(count)) return {std::move(count)};
  }
  return {};
}

std::optional<double> parse_duration_s(std::string_view text) {
  double total = 0;
  size_t next_unit = 0;
  const bool has_units = !text.empty() && text.find_first_not_of("0123456789._") != std::string_view::npos;
  if (!has_units) {
    const std::optional<double> seconds = take_number(text);
    return seconds && text.empty() ? seconds : std::nullopt;
  }
  while (!text.empty()) {
    const std::optional<double> number = take_number(text);
    const std::optional<size_t> unit = number ? duration_unit(text) : std::nullopt;
    if (!unit || *unit < next_unit) return std::nullopt;
    total += *number * kDurationUnits[*unit].second;
    text.remove_prefix(kDurationUnits[*unit].first.size());
    next_unit = *unit + 1;
  }
  if (!std::isfinite(total)) return std::nullopt;  // a number near the largest double, times its unit
  return total;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (!(seconds >= 0) || seconds > 1e12 || static_cast<double>(whole) != seconds) {
    return fmt::format("{}s", seconds);
  }
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  std::string text;
  if (hours) text += fmt::format("{}h", hours);
  if (minutes) text += fmt::format("{}m", minutes);
  if (rest || text.empty()) text += fmt::format("{}s", rest);
  return text;
}

}  // namespace ingot
