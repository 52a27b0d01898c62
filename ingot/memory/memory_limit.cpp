#include "ingot/memory/memory_limit.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "ingot/console/console.h"
#include "ingot/core/process/cgroups.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

// Returns the number after a key at the beginning of a line: "MemAvailable:   123 kB", "inactive_file 123".
std::optional<uint64_t> number_of(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    uint64_t value = 0;
    if (words >> word && word == key && words >> value) return value;
  }
  return std::nullopt;
}

// Returns the number in a file, or nullopt if it has none ("max") or does not exist.
std::optional<uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

// The file names and keys of one version of control groups.
struct CgroupNames {
  const char *limit, *used, *inactive_file, *active_file;
};
constexpr CgroupNames kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                "total_active_file"};
constexpr CgroupNames kVersion2{"memory.max", "memory.current", "inactive_file", "active_file"};

// The address space of this process, which is what "ulimit -v" counts.
uint64_t address_space_bytes() { return number_of("/proc/self/status", "VmSize:").value_or(0) * 1024; }

// Returns the addresses that this process takes and no plan counts: stacks and malloc's arenas of its
// threads, and the code that oneDNN generates for the processor. A run of a small model on 2 cores takes 163
// MB of them. oneDNN ends with SIGSEGV where the system refuses it some.
uint64_t uncounted_addresses() {
  return (uint64_t{128} + uint64_t{16} * std::thread::hardware_concurrency()) << 20;
}

void tighten(MemoryLimit& limit, uint64_t bytes, const std::string& source) {
  if (bytes >= limit.bytes) return;
  limit = {.bytes = bytes, .source = source};
}

void tighten_by_cgroup(MemoryLimit& limit, const Cgroup& group, const CgroupNames& names) {
  const auto most = number_in(group.folder / names.limit), used = number_in(group.folder / names.used);
  if (!most || !used) return;
  const fs::path stat = group.folder / "memory.stat";
  const uint64_t files =
      number_of(stat, names.inactive_file).value_or(0) + number_of(stat, names.active_file).value_or(0);
  const uint64_t taken = *used - std::min(*used, files);
  tighten(limit, *most - std::min(*most, taken),
          fmt::format("the control group {} ({} {}, {} in use)", group.name, names.limit,
                      format_bytes(static_cast<double>(*most)), format_bytes(static_cast<double>(taken))));
}

}  // namespace

MemoryLimit host_memory_limit(const MemoryFiles& files, bool counts_swap) {
  MemoryLimit limit;
  if (const auto available = number_of(files.meminfo, "MemAvailable:")) {
    const uint64_t swap = counts_swap ? number_of(files.meminfo, "SwapFree:").value_or(0) : 0;
    tighten(limit, (*available + swap) * 1024, "MemAvailable of " + files.meminfo.string());
  }
  visit_cgroups({.self = files.cgroup, .root = files.cgroup_root}, "memory", [&](const Cgroup& group) {
    tighten_by_cgroup(limit, group, group.version == 2 ? kVersion2 : kVersion1);
  });
  for (const auto& [resource, name] :
       {std::pair{RLIMIT_AS, "ulimit -v"}, std::pair{RLIMIT_DATA, "ulimit -d"}}) {
    rlimit most{};
    if (getrlimit(resource, &most) != 0 || most.rlim_cur == RLIM_INFINITY) continue;
    const uint64_t used = address_space_bytes() + uncounted_addresses();
    tighten(limit, most.rlim_cur - std::min<uint64_t>(most.rlim_cur, used),
            fmt::format("{} ({}, {} in use or needed by threads and generated code; raise it)", name,
                        format_bytes(static_cast<double>(most.rlim_cur)),
                        format_bytes(static_cast<double>(used))));
  }
  return limit;
}

}  // namespace ingot
