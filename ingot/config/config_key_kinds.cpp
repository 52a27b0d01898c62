#include "ingot/config/config_key_kinds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace ingot::key_kinds {
namespace {

std::string shown(const ConfigValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&value)) return fmt::format("{}", *d);
  if (const auto* s = std::get_if<std::string>(&value)) return toml_string(*s);
  if (const auto* v = std::get_if<std::vector<double>>(&value))
    return fmt::format("a list of {} numbers", v->size());
  return fmt::format("a list of {}", std::get<std::vector<std::string>>(value).size());
}

}  // namespace

void refuse(const std::string& name, const std::string& rule, const ConfigValue& value,
            const std::string& hint) {
  fail(ErrorKind::kUsage, "{} must be {}, got {}{}", name, rule, shown(value), hint);
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string whole_rule(int64_t low, int64_t high) {
  return high == kMany || high == std::numeric_limits<int64_t>::max()
             ? fmt::format("a whole number, at least {}", low)
             : fmt::format("a whole number in {} .. {}", low, high);
}

int64_t read_whole(const std::string& name, int64_t low, int64_t high, const ConfigValue& value) {
  std::optional<int64_t> n;
  if (const auto* i = std::get_if<int64_t>(&value)) n = *i;
  if (const auto* s = std::get_if<std::string>(&value)) n = parse_count(*s);
  if (const auto* d = std::get_if<double>(&value); d && *d == std::floor(*d) && std::abs(*d) < 9e15)
    n = static_cast<int64_t>(*d);
  if (!n) refuse(name, whole_rule(low, high), value, count_hint(value));
  if (*n < low || *n > high)
    refuse(name, whole_rule(low, high), value,
           fmt::format("; the nearest valid value is {}", std::clamp(*n, low, high)));
  return *n;
}

double read_number(const std::string& name, const ConfigValue& value) {
  std::optional<double> x;
  if (const auto* d = std::get_if<double>(&value)) x = *d;
  if (const auto* i = std::get_if<int64_t>(&value)) x = static_cast<double>(*i);
  if (!x || !std::isfinite(*x)) refuse(name, "a number", value);
  return *x;
}

std::vector<double> read_numbers(const std::string& name, const ConfigValue& value) {
  std::vector<double> numbers;
  if (const auto* v = std::get_if<std::vector<double>>(&value))
    numbers = *v;
  else if (const auto* empty = std::get_if<std::vector<std::string>>(&value); !empty || !empty->empty())
    refuse(name, "a list of numbers such as [0.7, 0.3]", value);
  for (const double x : numbers)
    if (!std::isfinite(x)) refuse(name, "a list of numbers such as [0.7, 0.3]", x);
  return numbers;
}

std::vector<int64_t> read_wholes(const std::string& name, const ConfigValue& value) {
  const std::string rule = "a list of whole numbers such as [0, 3]";
  std::vector<int64_t> wholes;
  const auto* numbers = std::get_if<std::vector<double>>(&value);
  const auto* empty = std::get_if<std::vector<std::string>>(&value);
  if (!numbers && !(empty && empty->empty())) refuse(name, rule, value);
  for (size_t i = 0; numbers && i < numbers->size(); ++i) {
    const double x = (*numbers)[i];
    if (!(std::abs(x) < 0x1p53) || x != std::floor(x)) refuse(name, rule, x);
    wholes.push_back(static_cast<int64_t>(x));
  }
  return wholes;
}

bool read_flag(const std::string& name, const ConfigValue& value) {
  const auto* b = std::get_if<bool>(&value);
  if (!b) refuse(name, "true or false", value);
  return *b;
}

size_t read_choice(const std::string& name, const std::vector<std::string>& choices,
                   const ConfigValue& value) {
  const auto* s = std::get_if<std::string>(&value);
  for (size_t i = 0; i < choices.size(); ++i)
    if (s && *s == choices[i]) return i;
  refuse(name, fmt::format("one of {}", list_names(choices)), value,
         s ? did_you_mean(suggested_values(*s, choices)) : "");
}

std::string rule_or_word(const std::string& rule, const std::string& word) {
  const bool is_choice = rule.starts_with("one of ");
  return is_choice ? fmt::format("one of {}, {}", word, rule.substr(7)) : fmt::format("{} or {}", rule, word);
}

std::string count_hint(const ConfigValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text ? did_you_mean(nearest_counts(*text)) : "";
}

bool is_toml_text(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) {
      return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u;
    };
    const unsigned first = byte(0);
    if (first == 0) return false;
    const size_t size = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (size == 0 || first > 0xF4) return false;
    for (size_t k = 1; k < size; ++k)
      if ((byte(k) & 0xC0) != 0x80) return false;
    const unsigned second = byte(1);  // rules out overlong forms, surrogates and code points above U+10FFFF
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
      return false;
    i += size;
  }
  return true;
}

}  // namespace ingot::key_kinds
