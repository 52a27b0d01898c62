#include "ingot/core/machine.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

namespace ingot {
namespace {

// The text after the colon of the first line that starts with the key.
std::string field_of(const char* path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

uint64_t kilobytes_of(std::string_view key) {
  std::istringstream in(field_of("/proc/meminfo", key));
  uint64_t value = 0;
  in >> value;
  return value * 1024;
}

// The first whole number in a file; 0 if there is none ("max").
uint64_t number_in(const char* path) {
  std::ifstream in(path);
  uint64_t value = 0;
  in >> value;
  return in ? value : 0;
}

std::vector<std::string> instruction_sets() {
  std::istringstream in(field_of("/proc/cpuinfo", "flags"));
  std::vector<std::string> has;
  for (std::string flag; in >> flag;) has.push_back(flag);
  std::vector<std::string> known;
  for (const char* name : {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16"})
    if (std::find(has.begin(), has.end(), name) != has.end()) known.emplace_back(name);
  return known;
}

}  // namespace

MachineInfo machine_info() {
  MachineInfo info;
  info.cpu = field_of("/proc/cpuinfo", "model name");
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) info.cores = CPU_COUNT(&set);
  info.instructions = instruction_sets();
  info.memory_bytes = kilobytes_of("MemTotal");
  info.memory_free_bytes = kilobytes_of("MemAvailable");
  const uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
  if (limit > 0 && limit < info.memory_bytes) {
    info.memory_bytes = limit;
    const uint64_t used = number_in("/sys/fs/cgroup/memory.current");
    info.memory_free_bytes = std::min(info.memory_free_bytes, limit - std::min(used, limit));
  }
  utsname name{};
  if (uname(&name) == 0) info.system = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
#ifdef __clang__
  info.compiler = "clang " __clang_version__;
#else
  info.compiler = "g++ " __VERSION__;
#endif
  return info;
}

uint64_t peak_rss_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

uint64_t rss_bytes() {
  std::ifstream pages("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  return pages >> all >> resident ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

uint64_t free_disk_bytes(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::absolute(path, error);
  while (!std::filesystem::exists(at, error) && at.has_parent_path() && at != at.parent_path())
    at = at.parent_path();
  const auto space = std::filesystem::space(at, error);
  return error ? 0 : space.available;
}

}  // namespace ingot
