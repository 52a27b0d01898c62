#include "ingot/run/record/report_provenance.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/core/file.h"

namespace ingot {
namespace {

using nlohmann::ordered_json;

// Returns the value at the path as text; empty if it is missing or null.
std::string value_at(const ordered_json& json, const char* path) {
  const ordered_json::json_pointer pointer(path);
  if (!json.contains(pointer) || json[pointer].is_null()) return "";
  const ordered_json& value = json[pointer];
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Joins the arguments as shell words; arguments with special characters are quoted.
std::string command_line(const ordered_json& arguments) {
  std::string line;
  for (const ordered_json& argument : arguments) {
    std::string text = argument.is_string() ? argument.get<std::string>() : argument.dump();
    const bool is_plain =
        !text.empty() && text.find_first_of(" \t\n'\"\\$`*?;&|<>()[]{}#!~") == std::string::npos;
    if (!is_plain) {
      std::string quoted;
      for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
      text = "'" + quoted + "'";
    }
    line += (line.empty() ? "" : " ") + text;
  }
  return line;
}

std::string commit_text(const ordered_json& json) {
  std::string text = value_at(json, "/program/commit");
  if (value_at(json, "/program/is_modified") == "true") text += ", modified";
  return text;
}

std::string libraries_text(const ordered_json& json) {
  std::string text;
  if (json.contains("libraries") && json["libraries"].is_object())
    for (const auto& [name, version] : json["libraries"].items())
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name,
                          version.is_string() ? version.get<std::string>() : version.dump());
  return text;
}

std::string part_text(const ordered_json& part) {
  std::string text = fmt::format("{} to {}: {} after {} steps", value_at(part, "/begin"),
                                 value_at(part, "/end"), value_at(part, "/status"), value_at(part, "/steps"));
  if (const std::string code = value_at(part, "/exit_code"); !code.empty() && code != "0")
    text += ", exit code " + code;
  return text;
}

}  // namespace

std::vector<ReportRow> provenance_rows(const std::filesystem::path& run_json) {
  std::vector<ReportRow> rows;
  ordered_json json;
  try {
    json = ordered_json::parse(read_file(run_json), nullptr, false);
  } catch (const Error&) {
  }
  if (!json.is_object()) return rows;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) rows.push_back({name, value});
  };
  add("version", value_at(json, "/program/version"));
  add("commit", commit_text(json));
  if (json.contains("/program/arguments"_json_pointer))
    add("command", command_line(json["/program/arguments"_json_pointer]));
  add("begin", value_at(json, "/begin"));
  add("end", value_at(json, "/end"));
  add("host", value_at(json, "/process/host"));
  add("process", value_at(json, "/process/pid"));
  add("threads", value_at(json, "/threads"));
  add("libraries", libraries_text(json));
  add("training tokens", value_at(json, "/data/train_tokens"));
  add("training data hash", value_at(json, "/data/train_hash"));
  add("validation data hash", value_at(json, "/data/val_hash"));
  add("tokenizer hash", value_at(json, "/data/tokenizer_hash"));
  add("configuration hash", value_at(json, "/config_hash"));
  if (json.contains("parts") && json["parts"].is_array() && json["parts"].size() > 1)
    for (const ordered_json& part : json["parts"])
      if (part.is_object()) add("part", part_text(part));
  return rows;
}

}  // namespace ingot
