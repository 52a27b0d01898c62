// Describes the machine of a run for run.json, reports and `ingot doctor`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ingot {

struct MachineInfo {
  std::string cpu;                        // "AMD EPYC 7B13"
  int cores = 0;                          // cores that this process may use
  std::vector<std::string> instructions;  // subset of avx2 fma f16c avx512f avx512_bf16 avx512_vnni amx_bf16
  uint64_t memory_bytes = 0;              // installed, or the container's limit
  uint64_t memory_free_bytes = 0;         // available now
  std::string system;                     // "Linux 6.1.0 x86_64"
  std::string compiler;                   // the compiler that built Ingot
};

// Reads /proc, /sys/fs/cgroup and uname. Fields that cannot be read stay empty or 0.
MachineInfo machine_info();

// Returns the largest resident memory of this process so far.
uint64_t peak_rss_bytes();
// Returns the resident memory of this process now; 0 if unknown.
uint64_t rss_bytes();

// Returns the free bytes for this user on the file system of the path or of its nearest existing parent; 0 if
// unknown.
uint64_t free_disk_bytes(const std::filesystem::path& path);

}  // namespace ingot
