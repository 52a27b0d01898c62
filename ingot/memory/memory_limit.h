// How much memory a run may still take: what the machine has available, and what the limits of control groups
// (containers, batch systems, systemd) leave of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

namespace ingot {

struct MemoryLimit {
  static constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
  uint64_t bytes = kUnknown;  // that may still be taken
  std::string source;         // "MemAvailable of /proc/meminfo", "the control group /job (limit 4.0 GB)"
};

// Where the kernel says so.
struct MemoryFiles {
  std::filesystem::path meminfo = "/proc/meminfo";
  std::filesystem::path cgroup = "/proc/self/cgroup";  // in which control groups this process is
  std::filesystem::path cgroup_root = "/sys/fs/cgroup";
};

// The least of MemAvailable and of what each limit of version 1 or 2 leaves, from this process's own control
// group up to the root. File pages that the kernel can drop do not count as taken. A file that is absent or
// says nothing sets no limit. swap: free swap space counts as available too.
MemoryLimit host_memory_limit(const MemoryFiles& files = {}, bool counts_swap = false);

}  // namespace ingot
