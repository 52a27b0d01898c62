// Finds how much memory a run may still allocate: what the machine has available, and what the limits of
// control groups (containers, batch systems, systemd) leave of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

namespace ingot {

struct MemoryLimit {
  static constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
  uint64_t bytes = kUnknown;  // bytes that may still be allocated
  std::string source;         // "MemAvailable of /proc/meminfo", "the control group /job (limit 4.0 GB)"
};

// The files in which the kernel reports memory.
struct MemoryFiles {
  std::filesystem::path meminfo = "/proc/meminfo";
  std::filesystem::path cgroup = "/proc/self/cgroup";  // the control groups of this process
  std::filesystem::path cgroup_root = "/sys/fs/cgroup";
};

// Returns the smallest of MemAvailable, what the limits of this process (ulimit -v, -d) leave, and what each
// limit of cgroup version 1 or 2 leaves, from this process's own control group up to the root. File pages
// that the kernel can drop count as free. A file that is missing or has no number sets no limit. If
// counts_swap, free swap space counts as available too.
MemoryLimit host_memory_limit(const MemoryFiles& files = {}, bool counts_swap = false);

}  // namespace ingot
