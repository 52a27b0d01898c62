#include "ingot/plan/hardware.h"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "ingot/config/nearest.h"
#include "ingot/config/toml_depth.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

enum class Presence { kRequired, kOptional };

// A key of a description and the member that it sets.
struct HardwareKey {
  std::string name;                            // "node.link_bytes_per_s"
  std::string rule;                            // what a value must be
  std::function<bool(const toml::node&)> set;  // false if the value breaks the rule
  Presence presence = Presence::kRequired;
};

bool set_number(const toml::node& node, double& member, double low, double high) {
  const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
  if (!value || !std::isfinite(*value) || *value < low || *value > high) return false;
  member = *value;
  return true;
}

bool set_latencies(const toml::node& node, PerProtocol& member) {
  const toml::array* array = node.as_array();
  if (!array || array->size() != kProtocols) return false;
  for (size_t p = 0; p < kProtocols; ++p)
    if (!set_number(*array->get(p), member[p], 0, 1)) return false;
  return true;
}

class HardwareKeys {
 public:
  explicit HardwareKeys(Hardware& hardware) {
    add_device(hardware.device);
    add_node(hardware.node);
    add_network(hardware.network);
    latencies("collectives.launch_s", hardware.collectives.launch_s);
  }

  const HardwareKey* find(const std::string& name) const {
    const auto found = std::ranges::find(keys_, name, &HardwareKey::name);
    return found == keys_.end() ? nullptr : &*found;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const HardwareKey& key : keys_) names.push_back(key.name);
    return names;
  }
  const std::vector<HardwareKey>& all() const { return keys_; }

 private:
  void add_device(Hardware::Device& device) {
    rate("device.f32_flops", device.f32_flops);
    rate("device.tf32_flops", device.tf32_flops);
    rate("device.bf16_flops", device.bf16_flops);
    optional("device.fp8_flops", device.fp8_flops);
    optional("device.compute_capability", device.compute_capability);
    rate("device.hbm_bytes", device.hbm_bytes);
    rate("device.hbm_bytes_per_s", device.hbm_bytes_per_s);
    number("device.kernel_launch_s", "a number of seconds in 0 .. 1", device.kernel_launch_s, 0, 1);
    fraction("device.product_fraction", device.product_fraction);
    fraction("device.memory_fraction", device.memory_fraction);
    rate("device.power_w", device.power_w);
    optional("device.price_per_hour", device.price_per_hour);
  }
  void add_node(Hardware::Node& node) {
    whole("node.devices", node.devices);
    keys_.push_back(
        {.name = "node.topology", .rule = "\"switch\" or \"ring\"", .set = [&node](const auto& value) {
           const std::string text = value.value_or(std::string());
           node.topology = text == "ring" ? Hardware::Topology::kRing : Hardware::Topology::kSwitch;
           return text == "ring" || text == "switch";
         }});
    rate("node.link_bytes_per_s", node.link_bytes_per_s);
    fraction("node.link_fraction", node.link_fraction);
    latencies("node.ring_latency_s", node.ring_latency_s);
    latencies("node.tree_latency_s", node.tree_latency_s);
  }
  void add_network(Hardware::Network& network) {
    whole("network.nics", network.nics);
    rate("network.nic_bytes_per_s", network.nic_bytes_per_s);
    fraction("network.nic_fraction", network.nic_fraction);
    whole("network.nodes_per_rack", network.nodes_per_rack);
    optional("network.rack_uplink_bytes_per_s", network.rack_uplink_bytes_per_s);
    latencies("network.ring_latency_s", network.ring_latency_s);
    latencies("network.tree_latency_s", network.tree_latency_s);
  }

  void number(const char* name, const char* rule, double& member, double low, double high) {
    keys_.push_back({.name = name, .rule = rule, .set = [&member, low, high](const toml::node& value) {
                       return set_number(value, member, low, high);
                     }});
  }
  void rate(const char* name, double& member) {
    number(name, "a number greater than 0, at most 1e24", member, std::numeric_limits<double>::min(), 1e24);
  }
  void fraction(const char* name, double& member) {
    number(name, "a fraction greater than 0, at most 1", member, std::numeric_limits<double>::min(), 1);
  }
  void optional(const char* name, double& member) {
    number(name, "a number in 0 .. 1e24", member, 0, 1e24);
    keys_.back().presence = Presence::kOptional;
  }
  void whole(const char* name, int& member) {
    keys_.push_back(
        {.name = name, .rule = "a whole number in 1 .. 1024", .set = [&member](const auto& value) {
           const int64_t number = value.is_integer() ? value.value_or(int64_t{0}) : 0;
           member = static_cast<int>(std::clamp<int64_t>(number, 1, 1024));
           return number == member;
         }});
  }
  void latencies(const char* name, PerProtocol& member) {
    keys_.push_back({.name = name,
                     .rule = "three numbers of seconds in 0 .. 1, for the protocols simple, ll128, ll",
                     .set = [&member](const toml::node& value) { return set_latencies(value, member); }});
  }

  std::vector<HardwareKey> keys_;
};

toml::table parse_description(std::string_view text, const std::string& file) {
  if (const std::optional<int64_t> line = too_deep_toml_line(text))
    fail(ErrorKind::kUsage, "{}:{}: is nested deeper than {} levels", file, *line, kMaxTomlDepth);
  try {
    return toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& error) {
    fail(ErrorKind::kUsage, "{}:{}: not TOML: {}", file, error.source().begin.line, error.description());
  }
}

std::string value_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("\"{}\"", text->get());
  if (const std::optional<double> number = node.value<double>()) return fmt::format("{}", *number);
  return node.is_array() ? "a list that breaks this rule" : "another kind of value";
}

}  // namespace

Hardware parse_hardware(std::string_view text, const std::string& file) {
  const toml::table table = parse_description(text, file);
  Hardware hardware;
  const HardwareKeys keys(hardware);
  const std::vector<std::string> sections = {"device", "node", "network", "collectives"};
  std::vector<std::string> seen;
  const auto set = [&](const std::string& name, const toml::key& key, const toml::node& value) {
    const auto line = key.source().begin.line;
    const HardwareKey* found = keys.find(name);
    if (!found)
      fail(ErrorKind::kUsage, "{}:{}: {}: unknown key{}", file, line, name,
           did_you_mean(nearest_names(name, keys.names())));
    if (!found->set(value))
      fail(ErrorKind::kUsage, "{}:{}: {} must be {}, got {}", file, line, name, found->rule,
           value_text(value));
    seen.push_back(name);
  };
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (const toml::table* section = node.as_table()) {
      const bool is_known = std::ranges::find(sections, name) != sections.end();
      if (section->empty() && !is_known)
        fail(ErrorKind::kUsage, "{}:{}: [{}]: unknown section{}", file, key.source().begin.line, name,
             did_you_mean(nearest_names(name, sections)));
      for (const auto& [leaf, value] : *section) set(fmt::format("{}.{}", name, leaf.str()), leaf, value);
    } else if (name != "name") {
      set(name, key, node);
    } else if (node.is_string()) {
      hardware.name = node.value_or(std::string());
    } else {
      fail(ErrorKind::kUsage, "{}:{}: name must be a text, got {}", file, key.source().begin.line,
           value_text(node));
    }
  }
  if (hardware.name.empty())
    fail(ErrorKind::kUsage, "{}: name is missing; write name = \"...\" on its first line", file);
  for (const HardwareKey& key : keys.all())
    if (key.presence == Presence::kRequired && std::ranges::find(seen, key.name) == seen.end())
      fail(ErrorKind::kUsage, "{}: {} is missing; it must be {}", file, key.name, key.rule);
  return hardware;
}

namespace {

// "NVIDIA RTX 4090" and "rtx4090" are "rtx-4090": the letters and digits, without the maker's name.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const unsigned char c : name)
    if (std::isalnum(c)) plain += static_cast<char>(std::tolower(c));
  for (const std::string_view maker : {"nvidia", "geforce"})
    if (const size_t at = plain.find(maker); at != std::string::npos) plain.erase(at, maker.size());
  return plain;
}

// Returns the bytes of "16GB" or "16 GiB"; nullopt for any other text.
std::optional<double> memory_of(std::string_view name) {
  const std::string plain = plain_name(name);
  size_t end = 0;
  while (end < plain.size() && std::isdigit(static_cast<unsigned char>(plain[end]))) ++end;
  const std::string unit = plain.substr(end);
  if (end == 0 || end > 5 || (unit != "g" && unit != "gb" && unit != "gib")) return std::nullopt;
  return std::stod(plain.substr(0, end)) * (unit == "gib" ? 1073741824.0 : 1e9);
}

// Returns the device whose memory is nearest, with that memory.
Hardware of_memory(double bytes, const std::string& text) {
  std::optional<Hardware> nearest;
  for (const HardwareFile& file : hardware_files()) {
    Hardware hardware = parse_hardware(file.toml, std::string(file.name));
    const auto distance = [&](const Hardware& h) { return std::abs(std::log(h.device.hbm_bytes / bytes)); };
    if (!nearest || distance(hardware) < distance(*nearest)) nearest = std::move(hardware);
  }
  nearest->name = fmt::format("{} (as fast as {})", text, nearest->name);
  nearest->device.hbm_bytes = bytes;
  return *nearest;
}

}  // namespace

Hardware find_hardware(const std::string& name_or_file) {
  if (name_or_file.ends_with(".toml") || name_or_file.find('/') != std::string::npos)
    return parse_hardware(read_toml_file(name_or_file), name_or_file);
  if (const std::optional<double> bytes = memory_of(name_or_file); bytes && *bytes > 0)
    return of_memory(*bytes, name_or_file);
  std::vector<std::string> names, similar;
  const std::string plain = plain_name(name_or_file);
  for (const HardwareFile& file : hardware_files()) {
    if (plain_name(file.name) == plain)
      return parse_hardware(file.toml, fmt::format("hardware {}", file.name));
    if (plain.size() > 2 && plain_name(file.name).find(plain) != std::string::npos)
      similar.emplace_back(file.name);
    names.emplace_back(file.name);
  }
  if (similar.size() == 1) return find_hardware(similar.front());  // "4090", "h100"
  if (similar.empty()) similar = nearest_names(name_or_file, names);
  fail(ErrorKind::kUsage,
       "no hardware is called \"{}\"{}; there are {}; a memory such as 16GB plans for a device of that size, "
       "and a file's name "
       "ends in .toml",
       name_or_file, did_you_mean(similar), list_names(names));
}

}  // namespace ingot
