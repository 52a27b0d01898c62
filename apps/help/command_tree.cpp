#include "apps/help/command_tree.h"

#include <CLI/App.hpp>

namespace ingot {
namespace {

CommandOption option_info(const CLI::Option& option) {
  CommandOption info;
  info.description = option.get_description();
  info.default_value = option.get_default_str();
  info.is_positional = option.get_positional();
  info.is_required = option.get_required();
  info.is_repeated = option.get_expected_max() > 1;
  if (info.is_positional) {
    info.names.push_back(option.get_name());
  } else {
    for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  }
  if (option.get_expected_max() > 0) info.value = option.get_type_name();
  return info;
}

CommandInfo command_info(const CLI::App& app, const std::string& parents) {
  CommandInfo info{.name = parents + app.get_name(), .description = app.get_description()};
  for (const CLI::Option* option : app.get_options()) info.options.push_back(option_info(*option));
  for (const CLI::App* command : app.get_subcommands({}))
    info.commands.push_back(command_info(*command, info.name + " "));
  return info;
}

void collect(const CommandInfo& command, std::vector<const CommandInfo*>& all) {
  all.push_back(&command);
  for (const CommandInfo& child : command.commands) collect(child, all);
}

bool has(const std::string& text, const char* word) { return text.find(word) != text.npos; }

}  // namespace

CommandInfo command_tree(const CLI::App& app) { return command_info(app, ""); }

std::vector<const CommandInfo*> all_commands(const CommandInfo& root) {
  std::vector<const CommandInfo*> all;
  collect(root, all);
  return all;
}

ValueKind value_kind(const CommandOption& option) {
  if (option.value.empty()) return ValueKind::kNothing;
  if (has(option.value, "key=value") || has(option.value, "KEY=")) return ValueKind::kKey;
  if (has(option.value, "PRESET")) return ValueKind::kPreset;
  if (has(option.value, "FILE") || has(option.value, "PATH")) return ValueKind::kFile;
  if (has(option.value, "DIR") || has(option.value, "RUN") || has(option.value, "CHECKPOINT"))
    return ValueKind::kFolder;
  return ValueKind::kText;
}

}  // namespace ingot
