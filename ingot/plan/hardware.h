// Hardware describes a cluster: its devices, the links inside a node, and the network between nodes. The
// files configs/hardware/*.toml are built into the program, and users can write their own. A file has every
// key that has no default here; its keys are the members' names, in sections [device], [node], [network] and
// [collectives], and `name` stands at the top.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

namespace ingot {

// Figures per protocol of NCCL, which trades latency for bandwidth.
enum class Protocol { kSimple, kLl128, kLl };
inline constexpr int kProtocols = 3;
using PerProtocol = std::array<double, kProtocols>;  // in the order of Protocol

struct Hardware {
  struct Device {
    double f32_flops = 0, tf32_flops = 0, bf16_flops = 0;  // dense peaks, FLOP/s
    double fp8_flops = 0;                                  // 0 if the device has no FP8 units
    double compute_capability = 0;                         // NVIDIA's number, such as 8.9; 0 if unknown
    double hbm_bytes = 0, hbm_bytes_per_s = 0;
    double kernel_launch_s = 0;
    double product_fraction = 0;  // attainable fraction of the peak, in large matrix products
    double memory_fraction = 0;   // attainable fraction of hbm_bytes_per_s
    double power_w = 0;
    double price_per_hour = 0;  // 0 if unknown; in any currency
  };
  enum class Topology { kSwitch, kRing };
  struct Node {
    int devices = 8;
    Topology topology = Topology::kSwitch;
    double link_bytes_per_s = 0;   // per device, each way
    double link_fraction = 0;      // attainable fraction of it
    PerProtocol ring_latency_s{};  // of a step of a ring
    PerProtocol tree_latency_s{};  // of a level of a tree
  };
  struct Network {
    int nics = 8;                // per node; device d uses NIC d * nics / devices
    double nic_bytes_per_s = 0;  // per NIC, each way
    double nic_fraction = 0;     // attainable fraction of it
    int nodes_per_rack = 4;
    double rack_uplink_bytes_per_s = 0;  // per rack, each way; 0 if the uplinks never limit
    PerProtocol ring_latency_s{};
    PerProtocol tree_latency_s{};
  };
  struct Collectives {
    PerProtocol launch_s{};  // of any collective or message
  };

  std::string name;
  Device device;
  Node node;
  Network network;
  Collectives collectives;
};

struct HardwareFile {
  std::string_view name;  // "h100-sxm"
  std::string_view toml;  // text of the file
};
std::span<const HardwareFile> hardware_files();  // sorted by name

// Reads a description. `file` stands for the text in errors, which are of kind kUsage and name the line, the
// key, its rule and the nearest key: "my.toml:7: node.link_byte_per_s: unknown key; did you mean ...?"
Hardware parse_hardware(std::string_view toml, const std::string& file);

// Returns the built-in description of that name ("rtx-4090"; "RTX 4090" and "4090" are accepted too), that of
// the device whose memory is nearest for a memory ("16GB"), or reads a file if the name ends in .toml or has
// a '/'. Throws a kUsage error with the nearest name if there is none, and if the file cannot be read.
Hardware find_hardware(const std::string& name_or_file);

}  // namespace ingot
