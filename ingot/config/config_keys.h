// The table of configuration keys. Each entry binds the name of a key to a member of RunConfig. The TOML
// reader, --set, the resolved config.toml, --help and "did you mean" all use this table.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ingot/config/config.h"

namespace ingot {

// A value as the user wrote it, before the rule of its key is applied.
using ConfigValue =
    std::variant<bool, int64_t, double, std::string, std::vector<std::string>, std::vector<double>>;

// ResumeClass says what a change of a key does to a run that is resumed.
enum class ResumeClass {
  kFree,    // nothing: the key decides where the run is computed, and how it is watched and saved
  kCourse,  // the model learns otherwise from now on, from the same text
  kSource,  // the text comes from another place; only a change of the tokens themselves counts
  kText,    // other text comes next; the user must accept it (--resume-anyway)
  kState,   // optimizer state and FP8 history may not fit; if they do not, the change is refused
  kModel,   // the weights are others; the change is refused
};

struct ConfigKey {
  std::string name;  // "model.layers"
  ResumeClass resume;
  std::string rule;         // what a value must be: "a whole number in 1 .. 10000"
  std::string doc;          // meaning, with the unit
  bool takes_text = false;  // true if --set takes the value as text, whatever it looks like
  // Stores the value. kUsage error "model.layers must be ..., got ..." if it breaks the rule.
  std::function<void(RunConfig&, const ConfigValue&)> set;
  // Returns the member as a TOML value, which set() reads back exactly.
  std::function<std::string(const RunConfig&)> toml;

  std::string_view section() const { return std::string_view(name).substr(0, name.find('.')); }
  std::string_view leaf() const { return std::string_view(name).substr(name.find('.') + 1); }
};

// Returns every key, grouped by section, in the order in which config.toml has them. Immutable.
const std::vector<ConfigKey>& config_keys();

const ConfigKey* find_config_key(std::string_view name);  // null if there is no such key

// Returns the keys that an unknown name may stand for, best first: the key for which other trainers use this
// name (known_names.h), a key with nearly the same full name, or a key with this name in another section.
std::vector<std::string> nearest_config_keys(std::string_view name);

// Returns "; did you mean ...?" with those keys; for a thing that Ingot does otherwise or lacks, a sentence
// about it; or "".
std::string unknown_key_hint(std::string_view name);

// Returns `text` as a TOML string, quoted and escaped.
std::string toml_string(std::string_view text);

}  // namespace ingot
