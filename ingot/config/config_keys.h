// The table of configuration keys: one line per key binds its name to a member of RunConfig. It serves the
// TOML reader, --set, the resolved config.toml, --help and "did you mean".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ingot/config/config.h"

namespace ingot {

// A value as written, before its key says what it must be.
using ConfigValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

struct ConfigKey {
  std::string name;         // "model.layers"
  std::string rule;         // "a whole number in 1 .. 10000": what a value must be
  std::string doc;          // what it means, with its unit
  bool takes_text = false;  // --set takes the value as it stands, whatever it looks like
  // Stores the value; kUsage error "model.layers must be ..., got ..." if it breaks the rule.
  std::function<void(RunConfig&, const ConfigValue&)> set;
  // The member as a TOML value, which set() reads back exactly.
  std::function<std::string(const RunConfig&)> toml;

  std::string_view section() const { return std::string_view(name).substr(0, name.find('.')); }
  std::string_view leaf() const { return std::string_view(name).substr(name.find('.') + 1); }
};

// Every key, sections together, in the order in which they are written. Immutable.
const std::vector<ConfigKey>& config_keys();

const ConfigKey* find_config_key(std::string_view name);  // null: no such key

// The keys an unknown name may stand for, best first: the key that other trainers call so (known_names.h), a
// slip of the pen in the whole name, or the right name in the wrong section.
std::vector<std::string> nearest_config_keys(std::string_view name);

// "text" as a TOML string, quoted and escaped.
std::string toml_string(std::string_view text);

}  // namespace ingot
