#include "apps/unknown_words.h"

#include <fmt/core.h>

#include <CLI/App.hpp>
#include <algorithm>

#include "ingot/config/config_keys.h"
#include "ingot/config/known_names.h"
#include "ingot/config/nearest.h"

namespace ingot {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({}))
    if (command->get_name() == name) return command;
  return nullptr;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// Returns the nearest names by spelling; if there are none, those of which one is a prefix of the other.
std::vector<std::string> nearest_words(const std::string& word, const std::vector<std::string>& names) {
  std::vector<std::string> nearest = nearest_names(word, names);
  if (!nearest.empty() || word.size() < 3) return nearest;
  std::copy_if(names.begin(), names.end(), std::back_inserter(nearest),
               [&](const std::string& name) { return name.starts_with(word) || word.starts_with(name); });
  return nearest;
}

// "tokenizer train": the names of a command and its parents; "" for the program.
std::string full_name(const CLI::App& app) {
  if (!app.get_parent()) return "";
  const std::string before = full_name(*app.get_parent());
  return before + (before.empty() ? "" : " ") + app.get_name();
}

// "tokenizer train: ": what a message begins with; main() puts the program's name before it.
std::string prefix(const CLI::App& app) {
  const std::string name = full_name(app);
  return name.empty() ? "" : name + ": ";
}

std::string unknown_command(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = command_names(app);
  return fmt::format("{}{}: unknown command{}; the commands are {}", prefix(app), word,
                     did_you_mean(nearest_words(word, names)), list_names(names));
}

// Returns how to set the keys that an option resembles: "--set optimizer.lr=VALUE".
std::vector<std::string> settings_like(const std::string& option) {
  std::string name = option.substr(std::min<size_t>(2, option.size()));
  std::replace(name.begin(), name.end(), '-', '_');
  std::vector<std::string> settings;
  if (name.size() < 2) return settings;
  for (const std::string& key : nearest_config_keys(name))
    settings.push_back(key.starts_with("--") ? key : fmt::format("--set {}=VALUE", key));
  return settings;
}

std::string unknown_option(const CLI::App& app, const std::string& option) {
  const std::string what = fmt::format("{}{}: unknown option", prefix(app), option);
  const std::string bare = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  for (const CLI::Option* position :
       app.get_options([](const CLI::Option* candidate) { return candidate->get_positional(); })) {
    if (position->get_name() != bare && !(position->get_name() == "config" && bare == "preset")) continue;
    return fmt::format("{}; {} stands without dashes: ingot {} {}", what, bare, full_name(app),
                       position->get_type_name().starts_with("TEXT") ? bare : position->get_type_name());
  }
  const std::vector<std::string> names = option_names(app);
  std::vector<std::string> meant = nearest_words(option, names);
  const bool takes_hardware = std::find(names.begin(), names.end(), "--hardware") != names.end();
  if (takes_hardware && (bare == "gpu" || bare == "device" || bare == "memory")) meant = {"--hardware"};
  const bool takes_keys = std::find(names.begin(), names.end(), "--set") != names.end();
  if (const std::string_view answer = answer_about(bare); meant.empty() && takes_keys && !answer.empty())
    return fmt::format("{}; {}", what, answer);
  if (meant.empty() && takes_keys) meant = settings_like(option);
  return meant.empty() ? fmt::format("{}; the options are {}", what, list_names(names))
                       : what + did_you_mean(meant);
}

bool has_option(const CLI::App& app, const std::string& name) {
  const auto options = app.get_options();
  return std::any_of(options.begin(), options.end(),
                     [&](const CLI::Option* option) { return option->check_name(name); });
}

// Returns true if the word looks like an option; -1 is a number.
bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !(word[1] >= '0' && word[1] <= '9') && word[1] != '.';
}

}  // namespace

std::string unknown_word(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* app = &program;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (is_option(words[i])) {
      if (!has_option(*app, name)) return unknown_option(*app, name);
    } else if (!app->get_subcommands({}).empty()) {
      const CLI::App* command = find_command(*app, words[i]);
      if (!command) return unknown_command(*app, words[i]);
      app = command;
    } else if (name != words[i] && words[i - 1] != "--set" && has_option(*app, "--set") &&
               find_config_key(name)) {
      return fmt::format("{}{}: a key is set by --set {}", prefix(*app), words[i], words[i]);
    }
  }
  const std::vector<std::string> commands = command_names(*app);
  const bool asks_for_help = std::find(words.begin(), words.end(), "--help") != words.end();
  if (commands.empty() || asks_for_help) return "";
  return fmt::format("{}a {}command must follow; they are {}", prefix(*app), app->get_parent() ? "sub" : "",
                     list_names(commands));
}

std::string missing_or_extra(const CLI::App& program, const std::vector<std::string>& words,
                             const std::string& refusal) {
  const CLI::App* app = &program;
  for (const std::string& word : words)
    if (const CLI::App* command = find_command(*app, word)) app = command;
  for (const CLI::Option* option : app->get_options()) {
    const std::string name = option->get_name();
    if (refusal == name + " is required")
      return fmt::format("{}{} {} is required: {}", prefix(*app), name, option->get_type_name(),
                         option->get_description());
  }
  if (refusal.find("not expected") != std::string::npos && has_option(*app, "--prompt"))
    return fmt::format("{}{}; a prompt stands after --prompt, in quotes", prefix(*app), refusal);
  return prefix(*app) + refusal;
}

bool take_help(const CLI::App& program, std::vector<std::string>& words) {
  const CLI::App* app = &program;
  for (size_t i = 0; i < words.size() && app; ++i) {
    if (app->get_subcommands({}).empty()) return false;
    if (words[i] == "help") {
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
      words.emplace_back("--help");
      return true;
    }
    app = find_command(*app, words[i]);
  }
  return false;
}

}  // namespace ingot
