// Defines the kinds of configuration keys. Each function makes the table entry of one key from its name, its
// rule and the path of member pointers to its member in RunConfig. Only config_keys.cpp and the files of key
// groups include this.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ingot/config/config_keys.h"
#include "ingot/config/config_units.h"
#include "ingot/config/known_names.h"
#include "ingot/config/nearest.h"
#include "ingot/core/error.h"

namespace ingot::key_kinds {

using enum ResumeClass;

// Throws "NAME must be RULE, got VALUE" + hint.
[[noreturn]] void refuse(const std::string& name, const std::string& rule, const ConfigValue& value,
                         const std::string& hint = "");

std::string float_text(double value);  // shortest exact decimal; never looks like a whole number

// Returns "; did you mean 7G?" for the text "7B", or "" if there is no suggestion.
std::string count_hint(const ConfigValue& value);

// Returns true for valid UTF-8 without NUL, which is what a TOML file can hold.
bool is_toml_text(std::string_view text);

inline constexpr int64_t kMany = int64_t{1} << 40;  // upper bound of steps and tokens, far below overflow

std::string whole_rule(int64_t low, int64_t high);  // "a whole number, at least 0"

// Return the value of the key `name`, or refuse it.
int64_t read_whole(const std::string& name, int64_t low, int64_t high, const ConfigValue& value);
double read_number(const std::string& name, const ConfigValue& value);
std::vector<double> read_numbers(const std::string& name, const ConfigValue& value);
std::vector<int64_t> read_wholes(const std::string& name, const ConfigValue& value);
bool read_flag(const std::string& name, const ConfigValue& value);
size_t read_choice(const std::string& name, const std::vector<std::string>& choices,
                   const ConfigValue& value);

// Returns the rule of a key that also takes `word`, such as "a number or auto".
std::string rule_or_word(const std::string& rule, const std::string& word);

// Returns the member at the end of a path of member pointers, such as &RunConfig::model,
// &ModelConfig::layers. The first element may also be a function.
template <typename Config, typename First, typename... Rest>
auto& member(Config& config, First first, Rest... rest) {
  return (std::invoke(first, config).*....*rest);
}

// Returns the value of a member that may be std::optional. REQUIRES: an optional has a value.
template <typename T>
const T& plain(const T& value) {
  return value;
}
template <typename T>
const T& plain(const std::optional<T>& value) {
  return *value;
}

template <typename... Path>
ConfigKey whole(std::string name, ResumeClass resume, int64_t low, int64_t high, std::string doc,
                Path... path) {
  return {name,
          resume,
          whole_rule(low, high),
          std::move(doc),
          false,
          [=](RunConfig& config, const ConfigValue& value) {
            const int64_t n = read_whole(name, low, high, value);
            auto& target = member(config, path...);
            target = static_cast<std::remove_reference_t<decltype(target)>>(n);
          },
          [=](const RunConfig& config) { return fmt::format("{}", plain(member(config, path...))); }};
}

// A key for any finite number; validate() of the owner checks the bounds.
template <typename... Path>
ConfigKey number(std::string name, ResumeClass resume, std::string doc, Path... path) {
  return {name,
          resume,
          "a number",
          std::move(doc),
          false,
          [=](RunConfig& config, const ConfigValue& value) {
            member(config, path...) = read_number(name, value);
          },
          [=](const RunConfig& config) { return float_text(plain(member(config, path...))); }};
}

// A key for a list of finite numbers.
template <typename... Path>
ConfigKey numbers(std::string name, ResumeClass resume, std::string doc, Path... path) {
  return {name,
          resume,
          "a list of numbers",
          std::move(doc),
          false,
          [=](RunConfig& config, const ConfigValue& value) {
            member(config, path...) = read_numbers(name, value);
          },
          [=](const RunConfig& config) {
            std::string list;
            for (const double item : member(config, path...))
              list += (list.empty() ? "" : ", ") + float_text(item);
            return "[" + list + "]";
          }};
}

// A key for a list of whole numbers; validate() of the owner checks the bounds.
template <typename... Path>
ConfigKey wholes(std::string name, ResumeClass resume, std::string doc, Path... path) {
  return {name,
          resume,
          "a list of whole numbers",
          std::move(doc),
          false,
          [=](RunConfig& config, const ConfigValue& value) {
            member(config, path...) = read_wholes(name, value);
          },
          [=](const RunConfig& config) {
            std::string list;
            for (const int64_t item : member(config, path...))
              list += fmt::format("{}{}", list.empty() ? "" : ", ", item);
            return "[" + list + "]";
          }};
}

template <typename... Path>
ConfigKey duration(std::string name, ResumeClass resume, std::string doc, Path... path) {
  const std::string rule = "a duration such as 90s, 2m or 1h30m";
  return {name,
          resume,
          rule,
          std::move(doc),
          false,
          [=](RunConfig& config, const ConfigValue& value) {
            std::optional<double> x;
            if (const auto* s = std::get_if<std::string>(&value)) x = parse_duration_s(*s);
            if (const auto* d = std::get_if<double>(&value)) x = *d;
            if (const auto* i = std::get_if<int64_t>(&value)) x = static_cast<double>(*i);
            if (!x || !(*x >= 0 && *x < 1e9)) refuse(name, rule, value);
            member(config, path...) = *x;
          },
          [=](const RunConfig& config) {
            const double seconds = plain(member(config, path...));
            return seconds == std::floor(seconds) ? toml_string(duration_text(seconds)) : float_text(seconds);
          }};
}

template <typename... Path>
ConfigKey flag(std::string name, ResumeClass resume, std::string doc, Path... path) {
  return {
      name,
      resume,
      "true or false",
      std::move(doc),
      false,
      [=](RunConfig& config, const ConfigValue& value) { member(config, path...) = read_flag(name, value); },
      [=](const RunConfig& config) { return plain(member(config, path...)) ? "true" : "false"; }};
}

template <typename... Path>
ConfigKey text(std::string name, ResumeClass resume, std::string doc, Path... path) {
  return {name,
          resume,
          "a text",
          std::move(doc),
          true,
          [=](RunConfig& config, const ConfigValue& value) {
            const auto* s = std::get_if<std::string>(&value);
            if (!s || !is_toml_text(*s)) refuse(name, "a text in UTF-8", value);
            member(config, path...) = *s;
          },
          [=](const RunConfig& config) { return toml_string(member(config, path...)); }};
}

template <typename... Path>
ConfigKey texts(std::string name, ResumeClass resume, std::string doc, Path... path) {
  return {name,
          resume,
          "a text or a list of texts",
          std::move(doc),
          true,
          [=](RunConfig& config, const ConfigValue& value) {
            std::vector<std::string> list;
            if (const auto* s = std::get_if<std::string>(&value))
              list = {*s};
            else if (const auto* v = std::get_if<std::vector<std::string>>(&value))
              list = *v;
            else
              refuse(name, "a text or a list of texts", value);
            for (const std::string& item : list)
              if (!is_toml_text(item)) refuse(name, "in UTF-8", item);
            member(config, path...) = std::move(list);
          },
          [=](const RunConfig& config) {
            std::string list;
            for (const std::string& item : member(config, path...))
              list += (list.empty() ? "" : ", ") + toml_string(item);
            return "[" + list + "]";
          }};
}

// A key for one of a few named values. The error lists the names; they are matched exactly.
template <typename Value, typename... Path>
ConfigKey choice(std::string name, ResumeClass resume, std::vector<std::pair<std::string, Value>> values,
                 std::string doc, Path... path) {
  std::vector<std::string> names;
  for (const auto& [key, value] : values) names.push_back(key);
  std::string rule = fmt::format("one of {}", list_names(names));
  return {name,
          resume,
          rule,
          std::move(doc),
          true,
          [=](RunConfig& config, const ConfigValue& value) {
            member(config, path...) = values[read_choice(name, names, value)].second;
          },
          [=](const RunConfig& config) {
            for (const auto& [key, v] : values)
              if (v == member(config, path...)) return toml_string(key);
            fail(ErrorKind::kUsage, "{} must be {}; the configuration holds another value", name, rule);
          }};
}

// A key for a list of named values; a single name is accepted as a list of one.
template <typename Value, typename... Path>
ConfigKey choices(std::string name, ResumeClass resume, std::vector<std::pair<std::string, Value>> values,
                  std::string doc, Path... path) {
  std::vector<std::string> names;
  for (const auto& [key, value] : values) names.push_back(key);
  std::string rule = fmt::format("a list of {}", list_names(names));
  return {name,
          resume,
          rule,
          std::move(doc),
          false,
          [=](RunConfig& config, const ConfigValue& value) {
            std::vector<std::string> given;
            if (const auto* s = std::get_if<std::string>(&value))
              given = {*s};
            else if (const auto* list = std::get_if<std::vector<std::string>>(&value))
              given = *list;
            else
              refuse(name, rule, value);
            std::vector<Value> chosen;
            for (const std::string& item : given) {
              const auto found = std::find_if(values.begin(), values.end(),
                                              [&](const auto& entry) { return entry.first == item; });
              if (found == values.end())
                refuse(name, rule, item, did_you_mean(suggested_values(item, names)));
              chosen.push_back(found->second);
            }
            member(config, path...) = std::move(chosen);
          },
          [=](const RunConfig& config) {
            std::string list;
            for (const auto& [key, value] : values)
              for (const Value& chosen : member(config, path...))
                if (chosen == value) list += (list.empty() ? "" : ", ") + toml_string(key);
            return "[" + list + "]";
          }};
}

// Extends a key to a member that is std::optional: `word` resets the member, so that the member's owner
// chooses the value.
template <typename... Path>
ConfigKey or_word(ConfigKey key, const std::string& word, Path... path) {
  key.rule = rule_or_word(key.rule, word);
  key.set = [=, set = std::move(key.set)](RunConfig& config, const ConfigValue& value) {
    const auto* s = std::get_if<std::string>(&value);
    if (s && *s == word)
      member(config, path...).reset();
    else
      set(config, value);
  };
  key.toml = [=, toml = std::move(key.toml)](const RunConfig& config) {
    return member(config, path...) ? toml(config) : toml_string(word);
  };
  return key;
}
template <typename... Path>
ConfigKey or_auto(ConfigKey key, Path... path) {
  return or_word(std::move(key), "auto", path...);
}

// Add groups of keys that are defined in files of their own.
void add_model_keys(std::vector<ConfigKey>& keys);
void add_loss_scale_keys(std::vector<ConfigKey>& keys);
void add_fp8_keys(std::vector<ConfigKey>& keys);
void add_head_keys(std::vector<ConfigKey>& keys);
void add_parallel_keys(std::vector<ConfigKey>& keys);
void add_scaling_keys(std::vector<ConfigKey>& keys);

}  // namespace ingot::key_kinds
