#include "ingot/run/record/tensorboard_tags.h"

#include <algorithm>
#include <charconv>

#include "ingot/config/config_keys.h"

namespace ingot {
namespace {

// Replaces characters other than letters, digits and _ . - /, which TensorBoard and its clients keep
// unchanged in a tag.
std::string plain_tag(std::string tag) {
  std::ranges::replace_if(
      tag,
      [](char c) {
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        return !is_letter && c != '_' && c != '.' && c != '-' && c != '/';
      },
      '_');
  return tag;
}

bool is_time(std::string_view field) {
  return field.ends_with("_ms") || field.ends_with("_per_s") || field == "mfu" || field == "bubble";
}

}  // namespace

std::string tensorboard_tag(std::string_view field) {
  const std::string name(field);
  if (field.starts_with("val_")) return plain_tag("val/" + name.substr(4));
  if (field.starts_with("ms_")) return plain_tag("time/" + name.substr(3) + "_ms");
  if (field.starts_with("task/")) return plain_tag(name);
  if (field == "rss_bytes") return "memory/rss_bytes";
  if (field.starts_with("bytes_")) return plain_tag("memory/" + name.substr(6) + "_bytes");
  return plain_tag((is_time(field) ? "time/" : "train/") + name);
}

std::string tensorboard_param_tag(std::string_view field, std::string_view param) {
  return plain_tag(fmt::format("params/{}/{}", field, param));
}

std::vector<HyperParameter> hyper_parameters(const RunConfig& config) {
  std::vector<HyperParameter> values;
  if (!config.preset.empty()) values.emplace_back("preset", config.preset);
  for (const ConfigKey& key : config_keys()) {
    std::string text = key.toml(config);
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text == "true" || text == "false")
      values.emplace_back(key.name, text == "true");
    else if (error == std::errc() && end == text.data() + text.size())
      values.emplace_back(key.name, number);
    else if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
      values.emplace_back(key.name, text.substr(1, text.size() - 2));
    else
      values.emplace_back(key.name, std::move(text));
  }
  return values;
}

std::string verbatim_markdown(std::string_view text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

}  // namespace ingot
