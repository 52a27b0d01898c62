#include "apps/help/completion.h"

#include <fmt/core.h>

#include <functional>
#include <vector>

#include "ingot/config/config_keys.h"
#include "ingot/config/presets.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

using Words = std::vector<std::string>;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// In single quotes, as bash and zsh read them.
std::string quoted(const std::string& text) { return "'" + replaced(text, "'", "'\\''") + "'"; }
std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string join(const Words& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

Words preset_names() {
  Words names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

Words key_names() {
  Words names;
  for (const ConfigKey& key : config_keys()) names.emplace_back(key.name);
  return names;
}

bool takes_preset(const CommandInfo& command) {
  for (const CommandOption& option : command.options)
    if (option.is_positional && value_kind(option) == ValueKind::kPreset) return true;
  return false;
}

// "ingot train --out" of every option whose value is of this kind.
Words options_of(const CommandInfo& root, ValueKind kind) {
  Words all;
  for (const CommandInfo* command : all_commands(root))
    for (const CommandOption& option : command->options)
      for (const std::string& name : option.names)
        if (!option.is_positional && value_kind(option) == kind)
          all.push_back(quoted(command->name + " " + name));
  return all;
}

// A branch "pattern | pattern) body ;;" of a case, or nothing without patterns.
std::string branch(const Words& patterns, const std::string& body) {
  return patterns.empty() ? "" : fmt::format("    {})\n      {} ;;\n", join(patterns, " | "), body);
}

// Finds the words of the command line that name a command; `word` is the shell's expression for word i.
std::string command_loop(const CommandInfo& root, const std::string& loop, const std::string& word) {
  Words names;
  for (const CommandInfo* command : all_commands(root))
    if (command != &root) names.push_back(quoted(command->name));
  return fmt::format("  {}; do\n    case \"$command {}\" in\n  {}    esac\n  done\n", loop, word,
                     branch(names, fmt::format("command+=\" {}\"", word)));
}

std::string bash_completion(const CommandInfo& root) {
  std::string text =
      "# Completion of ingot for bash; `ingot completion bash` writes it.\n"
      "_ingot() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=ingot words= i\n" +
      command_loop(root, "for ((i = 1; i < COMP_CWORD; ++i))", "${COMP_WORDS[i]}") +
      "  COMPREPLY=()\n"
      "  case \"$command $prev\" in\n";
  text += branch(options_of(root, ValueKind::kKey),
                 fmt::format("compopt -o nospace; COMPREPLY=($(compgen -S = -W {} -- \"$cur\")); return",
                             quoted(join(key_names(), " "))));
  text += branch(options_of(root, ValueKind::kFolder),
                 "compopt -o filenames; COMPREPLY=($(compgen -d -- \"$cur\")); return");
  text += branch(options_of(root, ValueKind::kFile),
                 "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); return");
  text += branch(options_of(root, ValueKind::kText), "return");
  text += "  esac\n  case \"$command\" in\n";
  for (const CommandInfo* command : all_commands(root)) {
    Words words;
    for (const CommandInfo& child : command->commands) words.push_back(child.last_word());
    if (takes_preset(*command))
      for (const std::string& preset : preset_names()) words.push_back(preset);
    for (const CommandOption& option : command->options)
      if (!option.is_positional) words.insert(words.end(), option.names.begin(), option.names.end());
    text += branch({quoted(command->name)}, "words=" + quoted(join(words, " ")));
  }
  return text +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "}\n"
         "complete -o bashdefault -o default -F _ingot ingot\n";
}

// "name:description", as zsh's _describe reads it.
std::string described(const std::string& name, const std::string& description) {
  return quoted(replaced(name, ":", "\\:") + ":" + replaced(description, ":", "\\:"));
}

std::string zsh_completion(const CommandInfo& root) {
  std::string text =
      "#compdef ingot\n"
      "# Completion of ingot for zsh; `ingot completion zsh` writes it.\n"
      "_ingot() {\n"
      "  local command=ingot i\n"
      "  local -a commands options presets\n" +
      command_loop(root, "for ((i = 2; i < CURRENT; ++i))", "${words[i]}") +
      "  case \"$command ${words[CURRENT-1]}\" in\n";
  text += branch(options_of(root, ValueKind::kKey),
                 fmt::format("compadd -S = -- {}; return", join(key_names(), " ")));
  text += branch(options_of(root, ValueKind::kFolder), "_files -/; return");
  text += branch(options_of(root, ValueKind::kFile), "_files; return");
  text += branch(options_of(root, ValueKind::kText), "return 1");
  text += "  esac\n  case \"$command\" in\n";
  for (const CommandInfo* command : all_commands(root)) {
    Words commands, options, presets_here;
    for (const CommandInfo& child : command->commands)
      commands.push_back(described(child.last_word(), child.description));
    for (const CommandOption& option : command->options)
      if (!option.is_positional)
        for (const std::string& name : option.names) options.push_back(described(name, option.description));
    if (takes_preset(*command))
      for (const Preset& preset : presets())
        presets_here.push_back(described(std::string(preset.name), std::string(preset_summary(preset))));
    text += branch({quoted(command->name)},
                   fmt::format("commands=({})\n      options=({})\n      presets=({})", join(commands, " "),
                               join(options, " "), join(presets_here, " ")));
  }
  return text +
         "  esac\n"
         "  if [[ ${words[CURRENT]} == -* ]]; then\n"
         "    _describe -o option options\n"
         "  elif (( $#commands )); then\n"
         "    _describe command commands\n"
         "  else\n"
         "    (( $#presets )) && _describe preset presets\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _ingot \"$@\"; else compdef _ingot ingot; "
         "fi\n";
}

std::string fish_option(const CommandOption& option) {
  std::string words;
  for (const std::string& name : option.names)
    words += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  switch (value_kind(option)) {
    case ValueKind::kNothing:
      break;
    case ValueKind::kKey: {
      Words keys = key_names();
      for (std::string& key : keys) key += "=";
      words += " -x -a " + fish_quoted(join(keys, " "));
      break;
    }
    case ValueKind::kFolder:
      words += " -x -a '(__fish_complete_directories)'";
      break;
    case ValueKind::kFile:
    case ValueKind::kPreset:
      words += " -r -F";
      break;
    case ValueKind::kText:
      words += " -x";
      break;
  }
  return words;
}

std::string fish_completion(const CommandInfo& root) {
  Words names;
  for (const CommandInfo* command : all_commands(root))
    if (command != &root) names.push_back(fish_quoted(command->name));
  std::string text = fmt::format(
      "# Completion of ingot for fish; `ingot completion fish` writes it.\n"
      "function __ingot_is -d 'True if the words before the cursor name this command'\n"
      "  set -l command ingot\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    contains -- \"$command $word\" {}; and set command \"$command $word\"\n"
      "  end\n"
      "  test \"$command\" = \"$argv[1]\"\n"
      "end\n"
      "complete -c ingot -f\n",
      join(names, " "));
  for (const CommandInfo* command : all_commands(root)) {
    const std::string line =
        fmt::format("complete -c ingot -n {}", fish_quoted("__ingot_is " + quoted(command->name)));
    for (const CommandInfo& child : command->commands)
      text += fmt::format("{} -a {} -d {}\n", line, child.last_word(), fish_quoted(child.description));
    if (takes_preset(*command))
      for (const Preset& preset : presets())
        text += fmt::format("{} -a {} -d {}\n", line, preset.name,
                            fish_quoted(std::string(preset_summary(preset))));
    if (command->commands.empty()) text += line + " -F\n";
    for (const CommandOption& option : command->options)
      if (!option.is_positional)
        text += fmt::format("{}{} -d {}\n", line, fish_option(option), fish_quoted(option.description));
  }
  return text;
}

}  // namespace

std::string completion_script(const CommandInfo& root, const std::string& shell) {
  if (shell == "bash") return bash_completion(root);
  if (shell == "zsh") return zsh_completion(root);
  if (shell == "fish") return fish_completion(root);
  fail(ErrorKind::kUsage, "completion: {}: unknown shell; the shells are bash, zsh and fish", shell);
}

}  // namespace ingot
