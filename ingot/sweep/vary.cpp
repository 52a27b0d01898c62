#include "ingot/sweep/vary.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "ingot/config/config_keys.h"
#include "ingot/config/config_toml.h"
#include "ingot/config/nearest.h"
#include "ingot/config/optimizer_keys.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

constexpr int64_t kMaxValues = 1000;
constexpr const char* kForms = "KEY=a,b,c, KEY=lo..hi:log:n or KEY=lo..hi:linear:n";

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// Splits at commas outside of brackets and quotes.
std::vector<std::string> split_values(std::string_view text) {
  std::vector<std::string> values(1);
  int depth = 0;
  bool is_quoted = false;
  for (const char c : text) {
    if (c == '"') is_quoted = !is_quoted;
    if (!is_quoted && c == '[') ++depth;
    if (!is_quoted && c == ']') --depth;
    if (c == ',' && depth == 0 && !is_quoted)
      values.emplace_back();
    else
      values.back() += c;
  }
  return values;
}

// The value as config.toml has it, so that "1e-3" and "0.001" are one. Throws if the key refuses it. key:
// null for optimizer.group, whose value is a list of tables.
std::string canonical(const std::string& name, const ConfigKey* key, const std::string& value) {
  ConfigBuilder builder;
  builder.add_override(name + "=" + value, "--vary");
  std::string toml = key ? key->toml(builder.config()) : optimizer_groups_value(builder.config().optimizer);
  const bool is_text = toml.size() >= 2 && toml.front() == '"' && toml.back() == '"';
  return is_text ? toml.substr(1, toml.size() - 2) : toml;
}

// Parses "1e-4..1e-2:log:5". Returns no values if the text is no range.
std::vector<std::string> range_values(const ConfigKey& key, std::string_view range, bool& is_log) {
  const size_t dots = range.find("..");
  if (dots == std::string_view::npos) return {};
  const auto refuse = [&](const std::string& why) {
    fail(ErrorKind::kUsage, "--vary {}={}: {}; wanted {}", key.name, range, why, kForms);
  };
  const size_t first_colon = range.find(':', dots);
  const size_t second_colon = range.find(':', std::min(first_colon, range.size() - 1) + 1);
  if (first_colon == std::string_view::npos || second_colon == std::string_view::npos)
    refuse("a range names its spacing and its number of values");
  const auto low = parse_number(range.substr(0, dots));
  const auto high = parse_number(range.substr(dots + 2, first_colon - dots - 2));
  const std::string spacing(range.substr(first_colon + 1, second_colon - first_colon - 1));
  const auto count = parse_number(range.substr(second_colon + 1));
  if (!low || !high) refuse("the ends of a range are numbers");
  if (*low >= *high) refuse("the range's low end must be below its high end");
  if (!count || *count != std::floor(*count) || *count < 2 || *count > kMaxValues)
    refuse(fmt::format("the number of values is a whole number from 2 to {}", kMaxValues));
  const std::vector<std::string> spacings = {"log", "linear"};
  if (std::ranges::find(spacings, spacing) == spacings.end())
    refuse(fmt::format("the spacing is log or linear, got \"{}\"{}", spacing,
                       did_you_mean(nearest_names(spacing, spacings))));
  is_log = spacing == "log";
  if (is_log && *low <= 0) refuse("a range over factors begins above 0");
  const bool is_whole = key.rule.starts_with("a whole number");
  std::vector<std::string> values;
  for (int64_t i = 0; i < static_cast<int64_t>(*count); ++i) {
    const double t = static_cast<double>(i) / (*count - 1);
    const double value = is_log ? *low * std::pow(*high / *low, t) : *low + (*high - *low) * t;
    values.push_back(is_whole ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value));
  }
  return values;
}

}  // namespace

std::optional<std::vector<double>> Vary::numbers() const {
  std::vector<double> numbers;
  for (const std::string& value : values) {
    const auto number = parse_number(value);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

bool Vary::spans_factors() const {
  const auto all = numbers();
  if (!all || all->size() < 2) return false;
  const auto [low, high] = std::ranges::minmax(*all);
  return low > 0 && (is_log || high / low >= 8);
}

Vary parse_vary(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    fail(ErrorKind::kUsage, "--vary: wanted {}, got \"{}\"", kForms, text);
  Vary vary{.key = std::string(text.substr(0, equals)), .values = {}};
  const ConfigKey* key = find_config_key(vary.key);
  if (!key && vary.key != kOptimizerGroup)
    fail(ErrorKind::kUsage, "--vary: {}: unknown key{}", vary.key, unknown_key_hint(vary.key));
  const std::string_view rest = text.substr(equals + 1);
  std::vector<std::string> values;
  if (key) values = range_values(*key, rest, vary.is_log);
  if (values.empty()) values = split_values(rest);
  for (const std::string& value : values) {
    if (value.empty()) fail(ErrorKind::kUsage, "--vary {}: a value is empty; wanted {}", text, kForms);
    vary.values.push_back(canonical(vary.key, key, value));
  }
  const Vary parsed = std::move(vary);
  vary = {.key = parsed.key, .values = {}, .is_log = parsed.is_log};
  merge(vary, parsed);
  return vary;
}

void merge(Vary& vary, const Vary& more) {
  INGOT_CHECK(vary.key == more.key, "merge: {} and {}", vary.key, more.key);
  for (const std::string& value : more.values)
    if (std::ranges::find(vary.values, value) == vary.values.end()) vary.values.push_back(value);
  vary.is_log |= more.is_log;
  if (vary.numbers())
    std::ranges::stable_sort(vary.values, {}, [](const std::string& value) { return *parse_number(value); });
}

}  // namespace ingot
