// Lists the commands of the program and their options as plain data, from which shell completions and manual
// pages are written.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace ingot {

struct CommandOption {
  std::vector<std::string> names =
      {};                  // with dashes, "-h" and "--help"; a positional argument has one, without
  std::string value = {};  // "DIR"; empty for a flag
  std::string description = {}, default_value = {};
  bool is_positional = false, is_required = false, is_repeated = false;
};

struct CommandInfo {
  std::string name = {};  // with those of its parents: "ingot data prepare"
  std::string description = {};
  std::vector<CommandOption> options = {};
  std::vector<CommandInfo> commands = {};

  std::string last_word() const { return name.substr(name.find_last_of(' ') + 1); }
};

CommandInfo command_tree(const CLI::App& app);

// Returns the command and all of its subcommands, at every depth.
std::vector<const CommandInfo*> all_commands(const CommandInfo& root);

// The kind of thing that the value of an option or of a positional argument names.
enum class ValueKind { kNothing, kText, kFolder, kFile, kKey, kPreset };
ValueKind value_kind(const CommandOption& option);

}  // namespace ingot
