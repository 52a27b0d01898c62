#include "ingot/plan/hardware.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <variant>

#include "ingot/config/nearest.h"
#include "ingot/config/toml_depth.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"

namespace ingot {
namespace {

struct Key {
  const char* name;
  std::variant<double Hardware::*, int Hardware::*> member;
  double least, most;
  bool is_required = false;
};

constexpr double kMost = 1e9;
constexpr std::array<Key, 19> kKeys{{
    {"f32_tflops", &Hardware::f32_tflops, 1e-6, kMost, true},
    {"bf16_tflops", &Hardware::bf16_tflops, 1e-6, kMost, true},
    {"fp8_tflops", &Hardware::fp8_tflops, 0, kMost},
    {"memory_gb", &Hardware::memory_gb, 1e-3, kMost, true},
    {"memory_gb_s", &Hardware::memory_gb_s, 1e-3, kMost, true},
    {"launch_us", &Hardware::launch_us, 0, kMost},
    {"product_share", &Hardware::product_share, 0.01, 1},
    {"memory_share", &Hardware::memory_share, 0.01, 1},
    {"power_w", &Hardware::power_w, 0, kMost},
    {"price_per_hour", &Hardware::price_per_hour, 0, kMost},
    {"devices_per_node", &Hardware::devices_per_node, 1, 4096},
    {"link_gb_s", &Hardware::link_gb_s, 1e-6, kMost},
    {"link_us", &Hardware::link_us, 0, kMost},
    {"nics_per_node", &Hardware::nics_per_node, 1, 4096},
    {"nic_gb_s", &Hardware::nic_gb_s, 1e-6, kMost},
    {"nic_us", &Hardware::nic_us, 0, kMost},
    {"collective_us", &Hardware::collective_us, 0, kMost},
    {"nodes_per_rack", &Hardware::nodes_per_rack, 0, 1e6},
    {"rack_gb_s", &Hardware::rack_gb_s, 0, kMost},
}};

const Key& key_of(const std::string& name, const std::string& where) {
  const auto found = std::ranges::find(kKeys, name, &Key::name);
  if (found != kKeys.end()) return *found;
  std::vector<std::string> names;
  for (const Key& key : kKeys) names.emplace_back(key.name);
  std::string hint = did_you_mean(nearest_names(name, names));
  if (hint.empty()) hint = "; keys are " + list_names(names);
  fail(ErrorKind::kUsage, "{}: {}: unknown key{}", where, name, hint);
}

void set(Hardware& hardware, const Key& key, const toml::node& node, const std::string& where) {
  const bool is_whole = std::holds_alternative<int Hardware::*>(key.member);
  const std::optional<double> value = is_whole && !node.is_integer() ? std::nullopt : node.value<double>();
  if (!value || !(*value >= key.least && *value <= key.most))
    fail(ErrorKind::kUsage, "{}: {} must be a {} from {} to {}", where, key.name,
         is_whole ? "whole number" : "number", key.least, key.most);
  if (is_whole)
    hardware.*std::get<int Hardware::*>(key.member) = static_cast<int>(*value);
  else
    hardware.*std::get<double Hardware::*>(key.member) = *value;
}

}  // namespace

double Hardware::flops_per_s(DType dtype) const {
  const double fp8 = fp8_tflops > 0 ? fp8_tflops : bf16_tflops;
  switch (dtype) {
    case DType::bf16:
    case DType::f16:
      return bf16_tflops * 1e12;
    case DType::f8e4m3:
    case DType::f8e5m2:
      return fp8 * 1e12;
    default:
      return f32_tflops * 1e12;
  }
}

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const HardwareFile& file : hardware_files()) names.emplace_back(file.name);
  return names;
}

Hardware parse_hardware(std::string_view text, const std::string& file) {
  if (const auto line = too_deep_toml_line(text))
    fail(ErrorKind::kUsage, "{}:{}: is nested deeper than {} levels", file, *line, kMaxTomlDepth);
  toml::table table;
  try {
    table = toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& error) {
    fail(ErrorKind::kUsage, "{}:{}: not TOML: {}", file, error.source().begin.line, error.description());
  }
  Hardware hardware{.name = std::filesystem::path(file).stem().string()};
  for (const auto& [key, node] : table) {
    const std::string where = fmt::format("{}:{}", file, node.source().begin.line);
    set(hardware, key_of(std::string(key.str()), where), node, where);
  }
  for (const Key& key : kKeys)
    if (key.is_required && !table.contains(key.name))
      fail(ErrorKind::kUsage, "{}: {} is missing; `ingot plan --hardware h100-sxm` shows a description", file,
           key.name);
  if (hardware.nodes_per_rack > 0 && hardware.rack_gb_s == 0)
    fail(ErrorKind::kUsage, "{}: nodes_per_rack needs rack_gb_s, the bandwidth from a rack to the others",
         file);
  return hardware;
}

Hardware load_hardware(const std::string& name) {
  for (const HardwareFile& file : hardware_files())
    if (file.name == name) return parse_hardware(file.toml, name);
  if (name.ends_with(".toml")) return parse_hardware(read_file(name), name);
  std::string hint = did_you_mean(nearest_names(name, hardware_names()));
  if (hint.empty())
    hint =
        fmt::format("; descriptions are {}, or a file's path ending in .toml", list_names(hardware_names()));
  fail(ErrorKind::kUsage, "--hardware {}: no such hardware{}", name, hint);
}

double RooflineCosts::seconds(const OpKey& key) const {
  const double products = key.flops / (hardware_.flops_per_s(key.dtype) * hardware_.product_share);
  const double traffic = key.bytes / (hardware_.memory_gb_s * 1e9 * hardware_.memory_share);
  return std::max(products, traffic) + hardware_.launch_us * 1e-6;
}

}  // namespace ingot
