// The options of update rules. Each rule declares its options once, in the rule's file: a plain struct with
// the defaults and a table of its fields.
//
//   struct Options {
//     double beta1 = 0.9, update_clip = 1;
//     static constexpr auto fields() {
//       return std::tuple{Field{kBeta1, &Options::beta1},
//                         Field{{"update_clip", "...", Limit::kPositive}, &Options::update_clip}};
//     }
//   };
//
// The configuration's keys, their texts, their limits and "auto" come from the tables of all rules
// (optim/rules/all_rules.h). A configuration holds only the options that were given (GivenOptions).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ingot/core/error.h"

namespace ingot {

enum class Limit : uint8_t { kNone, kFraction, kPositive, kNotNegative };

struct OptionInfo {
  std::string_view key;   // in configurations, such as "beta1"
  std::string_view text;  // the meaning
  Limit limit = Limit::kNone;
  bool shapes_state = false;  // true if the shapes or the meaning of the state depend on it
};

// A value of an option. A value of an enum is its name.
using OptionValue = std::variant<bool, int64_t, double, std::string>;

// The name of a value of an enum.
template <typename T>
struct ValueName {
  std::string_view name;
  T value;
};

// A row of a rule's table: an option and the member that holds it. names: those of an enum's values.
template <typename Options, typename T>
struct Field {
  OptionInfo info;
  T Options::*member;
  std::span<const ValueName<T>> names;

  constexpr Field(OptionInfo option, T Options::*of_options,
                  std::type_identity_t<std::span<const ValueName<T>>> value_names = {})
      : info(option), member(of_options), names(value_names) {}

  OptionValue to_value(T value) const {
    if constexpr (std::is_enum_v<T>) {
      for (const ValueName<T>& named : names)
        if (named.value == value) return std::string(named.name);
      fail(ErrorKind::kUsage, "{}: value {} has no name", info.key, static_cast<int>(value));
    } else {
      return value;
    }
  }
  T from_value(const OptionValue& value) const {
    if constexpr (std::is_enum_v<T>) {
      const auto* text = std::get_if<std::string>(&value);
      for (const ValueName<T>& named : names)
        if (text && *text == named.name) return named.value;
      fail(ErrorKind::kUsage, "{}: {} is not one of its values", info.key, text ? *text : "a number");
    } else {
      const T* found = std::get_if<T>(&value);
      INGOT_CHECK(found, "{}: the value has another type", info.key);
      return *found;
    }
  }
};

// Calls f(field) for each field of a rule's options, in the order of the table.
template <typename Options, typename F>
void for_each_field(F&& f) {
  std::apply([&](const auto&... field) { (f(field), ...); }, Options::fields());
}

// Calls f with the field of a member.
template <typename Options, typename T, typename F>
void with_field(T Options::*member, F&& f) {
  for_each_field<Options>([&](const auto& field) {
    if constexpr (std::is_same_v<decltype(field.member), T Options::*>) {
      if (field.member == member) f(field);
    }
  });
}

// Options by key, those that were given.
class GivenOptions {
 public:
  // One option, such as {&AdamW::Options::beta2, 0.99}.
  struct Item {
    std::string key = {};
    OptionValue value = {};

    template <typename Options, typename T>
    Item(T Options::*member, std::type_identity_t<T> to) {
      with_field(member, [&](const auto& field) { key = field.info.key, value = field.to_value(to); });
    }
  };

  GivenOptions() = default;
  GivenOptions(std::initializer_list<Item> items) {
    for (const Item& item : items) set(item.key, item.value);
  }

  // The member says which option: set(&AdamW::Options::beta2, 0.99). Rules share an option by its key.
  template <typename Options, typename T>
  void set(T Options::*member, std::type_identity_t<T> value) {
    with_field(member, [&](const auto& field) { set(field.info.key, field.to_value(value)); });
  }
  // Returns nullopt if the option was not given.
  template <typename Options, typename T>
  std::optional<T> get(T Options::*member) const {
    std::optional<T> found;
    with_field(member, [&](const auto& field) {
      if (const OptionValue* value = find(field.info.key)) found = field.from_value(*value);
    });
    return found;
  }

  void set(std::string_view key, OptionValue value) {
    values_.insert_or_assign(std::string(key), std::move(value));
  }
  void reset(std::string_view key) {
    if (const auto found = values_.find(key); found != values_.end()) values_.erase(found);
  }
  const OptionValue* find(std::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  // Adds the options of `base` that are not given.
  void add_missing(const GivenOptions& base) { values_.insert(base.values_.begin(), base.values_.end()); }

 private:
  std::map<std::string, OptionValue, std::less<>> values_;
};

// Returns a rule's options: those given, and the defaults of the others. Other rules' options are ignored.
template <typename Options>
Options read_options(const GivenOptions& given) {
  Options options;
  for_each_field<Options>([&](const auto& field) {
    if (const OptionValue* value = given.find(field.info.key))
      options.*field.member = field.from_value(*value);
  });
  return options;
}

// An option of a rule as a configuration sees it.
struct RuleOption {
  OptionInfo info;
  OptionValue default_value;        // has the type of the option
  std::vector<std::string> values;  // the names of all values, for an enum
};

// Returns the options of a rule, in the order of its table.
template <typename Options>
std::vector<RuleOption> list_options() {
  const Options defaults;
  std::vector<RuleOption> all;
  for_each_field<Options>([&](const auto& field) {
    RuleOption option{field.info, field.to_value(defaults.*field.member), {}};
    for (const auto& named : field.names) option.values.emplace_back(named.name);
    all.push_back(std::move(option));
  });
  return all;
}

// Throws the kUsage error "PREFIXbeta2 must lie in [0, 1), got 1" if a number is out of its limit.
void check_limit(const OptionInfo& option, const OptionValue& value, const std::string& prefix);

}  // namespace ingot
