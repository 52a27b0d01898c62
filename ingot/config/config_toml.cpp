#include "ingot/config/config_toml.h"

#include <toml++/toml.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "ingot/config/config_keys.h"
#include "ingot/config/known_names.h"
#include "ingot/config/nearest.h"
#include "ingot/config/optimizer_keys.h"
#include "ingot/config/preset_fit.h"
#include "ingot/config/presets.h"
#include "ingot/config/toml_depth.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

// Returns the value of a list, or nullopt if it has anything but texts, or anything but numbers.
std::optional<ConfigValue> list_of(const toml::array& array) {
  std::vector<std::string> texts;
  std::vector<double> numbers;
  for (const toml::node& item : array) {
    if (const auto* text = item.as_string())
      texts.push_back(text->get());
    else if (const auto* whole = item.as_integer())
      numbers.push_back(static_cast<double>(whole->get()));
    else if (const auto* number = item.as_floating_point())
      numbers.push_back(number->get());
    else
      return std::nullopt;
  }
  if (numbers.empty()) return ConfigValue(std::move(texts));
  return texts.empty() ? std::optional<ConfigValue>(std::move(numbers)) : std::nullopt;
}

// Returns the value of a node, or nullopt for tables, dates and lists that no key accepts.
std::optional<ConfigValue> value_of(const toml::node& node) {
  if (const auto* b = node.as_boolean()) return ConfigValue(b->get());
  if (const auto* i = node.as_integer()) return ConfigValue(i->get());
  if (const auto* d = node.as_floating_point()) return ConfigValue(d->get());
  if (const auto* s = node.as_string()) return ConfigValue(s->get());
  const auto* array = node.as_array();
  return array ? list_of(*array) : std::nullopt;
}

// Returns a hint if the value on this line has a unit but no quotes: in TOML, 512k must be quoted.
std::string unit_hint(std::string_view text, size_t line) {
  for (size_t i = 1; i < line && !text.empty(); ++i)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  text = text.substr(0, text.find('\n'));
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return "";
  std::string_view value = text.substr(equals + 1);
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  value = value.substr(0, value.find_first_of(" \t#\r"));
  const bool has_unit = !value.empty() && value[0] >= '0' && value[0] <= '9' &&
                        value.find_first_of("kKMGdhms") != std::string_view::npos;
  return has_unit ? fmt::format("; a value with a unit stands in quotes: \"{}\"", value) : "";
}

toml::table parse_toml(std::string_view text, const std::string& name) {
  if (const std::optional<int64_t> line = too_deep_toml_line(text))
    fail(ErrorKind::kUsage, "{}:{}: is nested deeper than {} levels", name, *line, kMaxTomlDepth);
  try {
    return toml::parse(text, std::string_view(name));
  } catch (const toml::parse_error& error) {
    const auto begin = error.source().begin;
    fail(ErrorKind::kUsage, "{}:{}: not TOML: {}{}", name, begin.line, error.description(),
         unit_hint(text, begin.line));
  }
}

[[noreturn]] void refuse_key(const std::string& where, const std::string& key) {
  fail(ErrorKind::kUsage, "{}: {}: unknown key{}", where, key, unknown_key_hint(key));
}

[[noreturn]] void refuse_section(const std::string& where, const std::string& section) {
  std::vector<std::string> sections;
  for (const ConfigKey& key : config_keys())
    if (sections.empty() || sections.back() != key.section()) sections.emplace_back(key.section());
  if (const std::string_view answer = answer_about(section); !answer.empty())
    fail(ErrorKind::kUsage, "{}: [{}]: unknown section; {}", where, section, answer);
  const std::vector<std::string> known = sections_known_as(section);
  std::string hint = did_you_mean(known.empty() ? nearest_names(section, sections) : known);
  if (hint.empty()) hint = fmt::format("; sections are {}", list_names(sections));
  fail(ErrorKind::kUsage, "{}: [{}]: unknown section{}", where, section, hint);
}

bool is_section(std::string_view name) {
  const auto& keys = config_keys();
  return std::any_of(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.section() == name; });
}

void set_key(RunConfig& config, const ConfigKey& key, const std::optional<ConfigValue>& value,
             const std::string& where) {
  if (!value) fail(ErrorKind::kUsage, "{}: {} must be {}", where, key.name, key.rule);
  try {
    key.set(config, *value);
  } catch (const Error& error) {
    throw Error(where + ": " + error.what(), error.kind());
  }
}

std::vector<std::string> nearest_group_keys(const std::string& name) {
  const std::vector<std::string> names = optimizer_group_key_names();
  std::vector<std::string> known;  // optimizer.lr in known_names.h is optimizer.group.lr here
  for (const std::string& key : keys_known_as(name.substr(kOptimizerGroup.size() + 1))) {
    const std::string own = fmt::format("{}.{}", kOptimizerGroup, key.substr(key.find('.') + 1));
    if (key.starts_with("optimizer.") && find_optimizer_group_key(own)) known.push_back(own);
  }
  return known.empty() ? nearest_names(name, names) : known;
}

// Replaces the optimizer's groups.
void read_groups(RunConfig& config, const toml::node& node, const std::string& name) {
  const auto* tables = node.as_array();
  const auto is_table = [](const toml::node& item) { return item.is_table(); };
  if (!tables || !std::all_of(tables->begin(), tables->end(), is_table))
    fail(ErrorKind::kUsage, "{}:{}: a group of the optimizer is a section of its own: [[{}]]", name,
         node.source().begin.line, kOptimizerGroup);
  config.optimizer.groups.clear();
  for (const toml::node& table : *tables) {
    config.optimizer.groups.emplace_back();
    for (const auto& [leaf, value] : *table.as_table()) {
      const std::string where = fmt::format("{}:{}", name, leaf.source().begin.line);
      const std::string full = fmt::format("{}.{}", kOptimizerGroup, leaf.str());
      const ConfigKey* key = find_optimizer_group_key(full);
      if (!key)
        fail(ErrorKind::kUsage, "{}: {}: unknown key{}", where, full, did_you_mean(nearest_group_keys(full)));
      set_key(config, *key, value_of(value), where);
    }
  }
}

// Reads the value of --set as TOML, or as a text if it is not valid TOML.
std::optional<ConfigValue> override_value(const std::string& text) {
  if (text.find('\n') != std::string::npos || too_deep_toml_line(text)) return ConfigValue(text);
  try {
    const toml::table table = toml::parse("v = " + text);
    const toml::node* node = table.get("v");
    if (table.size() == 1 && node) return value_of(*node);
  } catch (const toml::parse_error&) {
    // The value is a text without quotes.
  }
  return ConfigValue(text);
}

// Returns true if the text has nothing but empty sections and comments.
bool toml_is_empty(std::string_view text, const std::string& name) {
  const toml::table table = parse_toml(text, name);
  return std::all_of(table.begin(), table.end(), [](const auto& entry) {
    const toml::table* section = entry.second.as_table();
    return section && section->empty();
  });
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

}  // namespace

void ConfigBuilder::set_origin(const std::string& key, const std::string& where, bool is_preset) {
  origins_[key] = {.where = where, .is_preset = is_preset};
}

void ConfigBuilder::add_source(const std::string& preset_or_file) {
  const bool is_file = preset_or_file.ends_with(".toml") || preset_or_file.find('/') != std::string::npos;
  for (const char* other : {".yaml", ".yml", ".json", ".py", ".ini", ".cfg"})
    if (preset_or_file.ends_with(other))
      fail(ErrorKind::kUsage,
           "{}: a configuration is a TOML file, named *.toml: [section] lines with key = value lines below; "
           "`ingot train PRESET --print-config` prints one with every key",
           preset_or_file);
  std::error_code ignored;
  const bool is_text = !preset_or_file.ends_with(".toml") && !find_preset(preset_or_file) &&
                       std::filesystem::is_regular_file(preset_or_file, ignored);
  if (is_text || preset_or_file.find("://") != std::string::npos)
    fail(ErrorKind::kUsage,
         "{}: is no preset and no .toml file; text to train on stands after --data, as files",
         preset_or_file);
  if (!is_file) return add_preset(preset_or_file, "");
  add_file(preset_or_file, "");
}

void ConfigBuilder::add_file(const std::filesystem::path& file, const std::string& where) {
  std::error_code ignored;
  const auto is_same = [&](const std::filesystem::path& other) {
    return std::filesystem::equivalent(file, other, ignored);
  };
  if (std::ranges::any_of(open_files_, is_same))
    fail(ErrorKind::kUsage, "{}{}: this file is its own base", where, file.string());
  std::string text;
  try {
    text = read_toml_file(file);
  } catch (const Error& error) {
    throw Error(where + error.what(), ErrorKind::kUsage);
  }
  if (origins_.empty() && toml_is_empty(text, file.string()))
    fail(ErrorKind::kUsage,
         "{}: sets no key; start from a preset, with preset = \"tiny-llama\" on its first line",
         file.string());
  open_files_.push_back(file);
  add_toml(text, file.string());
  open_files_.pop_back();
}

void ConfigBuilder::add_preset(const std::string& name, const std::string& where) {
  const std::optional<Preset> preset = find_preset(name);
  if (!preset) {
    std::vector<std::string> names;
    for (const Preset& p : presets()) names.emplace_back(p.name);
    fail(ErrorKind::kUsage, "{}no preset is called \"{}\"{}; presets are {}; a file's name ends in .toml",
         where, name, did_you_mean(nearest_names(name, names)), list_names(names));
  }
  add_toml_of(preset->toml, "preset " + name, true);
  config_.preset = name;
  preset_ = config_;
}

void ConfigBuilder::add_toml(std::string_view text, const std::string& name) {
  add_toml_of(text, name, false);
}

void ConfigBuilder::add_toml_of(std::string_view text, const std::string& name, bool is_preset) {
  const toml::table table = parse_toml(text, name);
  const auto where = [&](const toml::key& key) {
    return fmt::format("{}:{}", name, key.source().begin.line);
  };
  for (const auto& [key, node] : table) {
    const bool is_base = key.str() == "base";
    if (key.str() != "preset" && !is_base) continue;
    const auto* value = node.as_string();
    if (!value || is_preset)
      fail(ErrorKind::kUsage, "{}: {} must be the name of a {}, in quotes, in a file of your own", where(key),
           key.str(), is_base ? "file" : "preset");
    if (is_base && table.contains("preset"))
      fail(ErrorKind::kUsage, "{}: a file has a base or a preset; move the preset into the base", where(key));
    if (is_base)
      add_file(std::filesystem::path(name).parent_path() / value->get(), where(key) + ": ");
    else
      add_preset(value->get(), where(key) + ": ");
  }
  for (const auto& [section, node] : table) {
    const std::string section_name(section.str());
    if (section_name == "preset" || section_name == "base") continue;
    const auto* keys = node.as_table();
    if (!keys && is_section(section_name))
      fail(ErrorKind::kUsage, "{}: {} is a section: write [{}] and its keys below", where(section),
           section_name, section_name);
    if (!keys) refuse_key(where(section), section_name);
    if (!is_section(section_name)) refuse_section(where(section), section_name);
    for (const auto& [leaf, value] : *keys) {
      const std::string full = section_name + "." + std::string(leaf.str());
      set_origin(full, where(leaf), is_preset);
      if (full == kOptimizerGroup) {
        read_groups(config_, value, name);
        continue;
      }
      const ConfigKey* key = find_config_key(full);
      if (!key) refuse_key(where(leaf), full);
      set_key(config_, *key, value_of(value), where(leaf));
    }
  }
}

void ConfigBuilder::add_override(std::string_view assignment, const std::string& flag) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos)
    fail(ErrorKind::kUsage, "{}: wanted key=value, got \"{}\"", flag, assignment);
  std::string name(assignment.substr(0, equals)), text(assignment.substr(equals + 1));
  if (name.ends_with(' ')) {  // "key = value", as in a file
    name.erase(name.find_last_not_of(' ') + 1);
    text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  }
  if (name == "preset" || name == "base")
    fail(ErrorKind::kUsage, "{}: the {} is the command's argument, or stands at the top of a file", flag,
         name);
  if (name == kOptimizerGroup) {
    const toml::table table = parse_toml("v = " + text, flag);
    if (table.size() != 1) fail(ErrorKind::kUsage, "{}: wanted key=value, got \"{}\"", flag, assignment);
    read_groups(config_, *table.get("v"), flag);
    set_origin(name, flag, false);
    return;
  }
  const ConfigKey* key = find_config_key(name);
  if (!key && std::all_of(name.begin(), name.end(), is_name_char)) refuse_key(flag, name);
  if (!key) fail(ErrorKind::kUsage, "{}: wanted key=value, got \"{}\"", flag, assignment);
  std::optional<ConfigValue> value = override_value(text);
  const bool is_text = value && (std::holds_alternative<std::string>(*value) ||
                                 std::holds_alternative<std::vector<std::string>>(*value));
  if (key->takes_text && !is_text) value = text;
  set_key(config_, *key, value, flag);
  set_origin(name, flag, false);
}

void ConfigBuilder::add_texts(const std::string& key, const std::vector<std::string>& values,
                              const std::string& flag) {
  const ConfigKey* found = find_config_key(key);
  INGOT_CHECK(found, "ConfigBuilder::add_texts: no key is called {}", key);
  set_key(config_, *found, ConfigValue(values), flag);
  set_origin(key, flag, false);
}

std::string ConfigBuilder::set_by_user(std::string_view key) const {
  const auto origin = origins_.find(key);
  return origin == origins_.end() || origin->second.is_preset ? "" : origin->second.where;
}

const RunConfig& ConfigBuilder::build() {
  try {
    fit_to_run();
    config_.validate();
    if (const std::string line = resolve_scaling(config_); !line.empty()) {
      notes_.push_back(line);
      config_.validate();
    }
  } catch (const Error& error) {
    // The error gets the place where the first key that the message names was set; the user's keys come
    // before a preset's.
    const std::string_view message = error.what();
    std::string where;
    std::pair<bool, size_t> first{true, message.size()};  // is a preset's, position in the message
    for (const auto& [key, origin] : origins_) {
      const size_t at = message.find(key);
      const bool is_whole = at != std::string_view::npos &&
                            (at + key.size() == message.size() || !is_name_char(message[at + key.size()]));
      if (!is_whole || std::pair(origin.is_preset, at) >= first) continue;
      first = {origin.is_preset, at};
      where = origin.where + ": ";
    }
    throw Error(where + error.what(), error.kind());
  }
  return config_;
}

void ConfigBuilder::fit_to_run() {
  if (preset_.preset.empty()) return;
  const auto is_from = [&](std::string_view key, bool preset) {
    const auto origin = origins_.find(key);
    return origin != origins_.end() && origin->second.is_preset == preset;
  };
  const std::vector<std::string> notes = fit_preset(
      config_, preset_, [&](std::string_view key) { return is_from(key, true); },
      [&](std::string_view key) { return is_from(key, false); });
  notes_.insert(notes_.end(), notes.begin(), notes.end());
}

std::string config_toml(const RunConfig& config, ConfigDocs docs) {
  std::string text;
  if (!config.preset.empty()) text += fmt::format("preset = {}\n", toml_string(config.preset));
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    if (key.section() != section) {
      if (section == "optimizer") text += optimizer_groups_toml(config.optimizer);
      section = key.section();
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    const std::string line = fmt::format("{} = {}", key.leaf(), key.toml(config));
    text += docs == ConfigDocs::kNone ? line + "\n" : fmt::format("{:<28}  # {}\n", line, key.doc);
  }
  return text;
}

std::string config_hash(const RunConfig& config) {
  RunConfig nameless = config;
  nameless.preset.clear();
  const std::string text = config_toml(nameless, ConfigDocs::kNone);
  return fmt::format("{:016x}", static_cast<uint64_t>(XXH3_64bits(text.data(), text.size())));
}

std::string config_reference() {
  const RunConfig defaults;
  std::string text;
  for (const ConfigKey& key : config_keys())
    text += fmt::format("  {:<24} {} ({}; default {})\n", key.name, key.doc, key.rule, key.toml(defaults));
  text += fmt::format("  [[{}]], any number of times: what some of the parameters do otherwise\n",
                      kOptimizerGroup);
  for (const ConfigKey& key : optimizer_group_keys())
    text += fmt::format("  {:<24} {} ({})\n", key.leaf(), key.doc, key.rule);
  return text;
}

}  // namespace ingot
