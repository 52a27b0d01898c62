// Reads presets, files and --set into a RunConfig, and writes the resolved config.toml.
//
// Precedence: defaults < preset < file < environment (config_environment.h) < --set. Invalid input is a
// kUsage error that names the place, the rule, and the nearest valid value or key:
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

// Builds a configuration and records for every key where it was set last ("run.toml:12", "--set", "preset
// demo, line 3"). Later calls override earlier ones.
class ConfigBuilder {
 public:
  // Adds a preset by its name or a TOML file by its path. A file may start from a preset: preset = "demo"
  // at its top; or from another file, whose place is relative to its own: base = "common.toml".
  void add_source(const std::string& preset_or_file);

  // Adds TOML text; `name` stands for the file in errors.
  void add_toml(std::string_view text, const std::string& name);

  // Adds one "key=value" of --set. The value is TOML, or a text without quotes. `flag` stands for the file in
  // errors.
  void add_override(std::string_view assignment, const std::string& flag = "--set");

  // Sets a list of texts that has its own command-line flag (--data). `flag` stands for the file in errors.
  void add_texts(const std::string& key, const std::vector<std::string>& values, const std::string& flag);

  // Returns the validated configuration. Values from a preset are first adapted to the run's length if
  // the user changed it (preset_fit.h). An error names the place where its key was set.
  const RunConfig& build();

  // Returns where the user set a key last ("run.toml:12", "--set"), or an empty text if its value is a
  // default or a preset's.
  std::string set_by_user(std::string_view key) const;

  // The preset values that build() changed, one sentence each.
  const std::vector<std::string>& notes() const { return notes_; }

  // Not validated; keys may still change.
  RunConfig& config() { return config_; }

 private:
  void add_preset(const std::string& name, const std::string& where);
  void add_file(const std::filesystem::path& file, const std::string& where);
  void add_toml_of(std::string_view text, const std::string& name, bool is_preset);

  struct Origin {
    std::string where;
    bool is_preset = false;
  };
  void set_origin(const std::string& key, const std::string& where, bool is_preset);
  void fit_to_run();

  RunConfig config_;
  RunConfig preset_;  // copy of config_ after the preset was added; its `preset` is empty if there is none
  std::vector<std::string> notes_;
  std::vector<std::filesystem::path> open_files_ = {};  // each is the base of the one before
  std::map<std::string, Origin, std::less<>> origins_;  // key -> where it was set last
};

// Writes the resolved configuration as TOML, with every key. With kComments, each line ends in a comment
// with the key's meaning. A ConfigBuilder reads the text back to the same configuration.
enum class ConfigDocs { kNone, kComments };
std::string config_toml(const RunConfig& config, ConfigDocs docs);

// XXH3-64 of the resolved configuration, as 16 hexadecimal digits. The preset's name is not included.
std::string config_hash(const RunConfig& config);

// Returns every key with its rule, meaning and default, for --help.
std::string config_reference();

}  // namespace ingot
