#include "apps/help/man_pages.h"

#include <fmt/core.h>

#include <algorithm>

#include "ingot/config/config_keys.h"
#include "ingot/config/presets.h"

namespace ingot {
namespace {

// Text as roff shows it. A line that begins with a dot or an apostrophe would be a request.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_at_begin = out.empty() || out.back() == '\n';
    if (is_at_begin && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\'')
      out += "\\(aq";
    else
      out += c;
  }
  return out;
}

std::string page_name(const CommandInfo& command) {
  std::string name = command.name;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string head(const std::string& page, int section, const std::string& version, std::string_view summary) {
  std::string upper = page;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return fmt::format(".TH {} {} \"\" \"ingot {}\" \"Ingot\"\n.SH NAME\n{} \\- {}\n", escaped(upper), section,
                     escaped(version), escaped(page), escaped(summary));
}

// A tagged paragraph: what stands before it in bold, and its text.
std::string tagged(const std::string& tag, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", tag, text.empty() ? "\\&" : text);
}

std::string bold(std::string_view text) { return fmt::format("\\fB{}\\fR", escaped(text)); }
std::string italic(std::string_view text) { return fmt::format("\\fI{}\\fR", escaped(text)); }

std::string option_tag(const CommandOption& option) {
  std::string tag;
  for (const std::string& name : option.names)
    tag += (tag.empty() ? "" : ", ") + (option.is_positional ? italic(name) : bold(name));
  if (!option.value.empty() && !option.is_positional) tag += " " + italic(option.value);
  if (option.is_repeated) tag += " ...";
  return tag;
}

std::string option_text(const CommandOption& option) {
  std::string text = escaped(option.description);
  if (option.is_positional && option.value != "TEXT")
    text = italic(option.value) + (text.empty() ? "" : ": ") + text;
  if (option.is_required) text += " (required)";
  if (!option.default_value.empty()) text += fmt::format(" (default {})", escaped(option.default_value));
  return text;
}

std::string synopsis(const CommandInfo& command) {
  std::string line = ".SH SYNOPSIS\n" + bold(command.name) + " [" + italic("OPTIONS") + "]";
  if (!command.commands.empty()) line += " " + italic("COMMAND") + " ...";
  for (const CommandOption& option : command.options) {
    if (!option.is_positional) continue;
    const std::string name = italic(option.names.front()) + (option.is_repeated ? " ..." : "");
    line += option.is_required ? " " + name : " [" + name + "]";
  }
  return line + "\n";
}

bool takes_keys(const CommandInfo& command) {
  return std::ranges::any_of(command.options, [](const CommandOption& option) {
    return value_kind(option) == ValueKind::kKey || value_kind(option) == ValueKind::kPreset;
  });
}

std::string exit_status() {
  return ".SH EXIT STATUS\n" + tagged(bold("0"), "The command did what it was asked for.") +
         tagged(bold("1"), "An internal error, or a call that the operating system refused.") +
         tagged(bold("2"), "The command line or the configuration is wrong.") +
         tagged(bold("3"), "An input file is missing, damaged or unsuitable.") +
         tagged(bold("4"), "Memory ran out, or the request would not fit.") +
         tagged(bold("5"), "A loss or a gradient is not finite, and the run cannot go on.") +
         tagged(bold("6"), "Writing failed: the disk is full, read\\-only or not permitted.") +
         tagged(bold("75"), "The run was interrupted and can be resumed, if there was something to save.");
}

std::string command_page(const CommandInfo& command, const CommandInfo& root, const std::string& version) {
  std::string text = head(page_name(command), 1, version, command.description) + synopsis(command);
  if (!command.commands.empty()) {
    text += ".SH COMMANDS\n";
    for (const CommandInfo& child : command.commands)
      text += tagged(fmt::format("\\fB{}\\fR(1)", escaped(page_name(child))), escaped(child.description));
  }
  text += ".SH OPTIONS\n";
  for (const CommandOption& option : command.options) text += tagged(option_tag(option), option_text(option));
  text += exit_status() + ".SH SEE ALSO\n";
  if (&command != &root) text += fmt::format("\\fB{}\\fR(1)", escaped(page_name(root)));
  if (&command == &root || takes_keys(command))
    text += fmt::format("{}\\fBingot\\-config\\fR(5)", &command == &root ? "" : ", ");
  return text + "\n";
}

std::string config_page(const std::string& version) {
  std::string text = head("ingot-config", 5, version, "configuration files, keys and presets of ingot");
  text +=
      ".SH DESCRIPTION\n"
      "A configuration is a TOML file. A key such as \\fBtrain.steps\\fR stands as \\fBsteps\\fR in the "
      "section\n"
      "\\fB[train]\\fR; on the command line it is \\fB\\-\\-set train.steps=1000\\fR. Defaults are "
      "overridden by a preset, "
      "a preset by a\nfile, and a file by \\fB\\-\\-set\\fR. A file may start from a preset with \\fBpreset "
      "= \"demo\"\\fR "
      "at its top.\n"
      ".SH KEYS\n";
  const RunConfig defaults;
  for (const ConfigKey& key : config_keys())
    text += tagged(bold(key.name), fmt::format("{} ({}; default {})", escaped(key.doc), escaped(key.rule),
                                               escaped(key.toml(defaults))));
  text += ".SH PRESETS\n";
  for (const Preset& preset : presets()) text += tagged(bold(preset.name), escaped(preset_summary(preset)));
  return text + ".SH SEE ALSO\n\\fBingot\\fR(1), \\fBingot\\-train\\fR(1)\n";
}

}  // namespace

std::map<std::string, std::string> man_pages(const CommandInfo& root, const std::string& version) {
  std::map<std::string, std::string> pages;
  for (const CommandInfo* command : all_commands(root))
    pages[page_name(*command) + ".1"] = command_page(*command, root, version);
  pages["ingot-config.5"] = config_page(version);
  return pages;
}

}  // namespace ingot
