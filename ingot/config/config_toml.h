// From presets, files and --set to a RunConfig, and back to the resolved config.toml.
//
// Precedence: defaults < preset < file < --set. Whatever cannot be taken is a kUsage error that names where
// it stands, the rule, and the nearest valid value or key:
//   "run.toml:12: optimizer.lrr: unknown key; did you mean optimizer.lr?"
//   "--set: train.steps must be a whole number, at least 1, got "many""
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/config/config.h"

namespace ingot {

// A configuration being put together, and for every key that was set, where ("run.toml:12", "--set",
// "preset demo, line 3"). Later calls override earlier ones.
class ConfigBuilder {
 public:
  // A preset's name or a TOML file's path. A file may start from a preset: preset = "demo" at its top.
  void add_source(const std::string& preset_or_file);

  // TOML text; `name` stands for the file in errors.
  void add_toml(std::string_view text, const std::string& name);

  // "key=value" of --set. The value is TOML, or a text without quotes.
  void add_override(std::string_view assignment);

  // A member that a flag of its own sets (--data): texts, by key. `flag` stands for the file in errors.
  void add_texts(const std::string& key, const std::vector<std::string>& values, const std::string& flag);

  // The validated result. What a preset gave follows the run's length that the user gave (preset_fit.h). An
  // error names where the key it is about was set.
  const RunConfig& build();

  // What build() changed of the preset's values, a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }

  // Not validated; keys may still change.
  RunConfig& config() { return config_; }

 private:
  void add_preset(const std::string& name, const std::string& where);
  void add_toml_of(std::string_view text, const std::string& name, bool is_preset);

  struct Origin {
    std::string where;
    bool is_preset = false;
  };
  void set_origin(const std::string& key, const std::string& where, bool is_preset);
  void fit_to_run();

  RunConfig config_;
  RunConfig preset_;  // as the preset left it; its preset is empty if there is none
  std::vector<std::string> notes_;
  std::map<std::string, Origin, std::less<>> origins_;  // key -> who set it last
};

// The resolved configuration as TOML, every key written. With docs, each line ends in a comment that says
// what the key means. A ConfigBuilder reads it back to the same configuration.
enum class ConfigDocs { kNone, kComments };
std::string config_toml(const RunConfig& config, ConfigDocs docs);

// XXH3-64 of the resolved configuration, 16 hexadecimal digits. The preset's name does not enter.
std::string config_hash(const RunConfig& config);

// Every key with its rule, meaning and default, for --help.
std::string config_reference();

}  // namespace ingot
