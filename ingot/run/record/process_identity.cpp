#include "ingot/run/record/process_identity.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

namespace ingot {
namespace {

struct ProcessStat {
  char state = '?';  // Z: ended, but not yet waited for by its parent
  uint64_t start_ticks = 0;
};

// Reads /proc/PID/stat. State and start time come after the name, which is in brackets and may contain any
// character. Returns nullopt if there is no such process.
std::optional<ProcessStat> stat_of(int64_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(in, text, '\0')) return std::nullopt;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  ProcessStat stat;
  rest >> stat.state;
  constexpr int kFieldsBetween = 18;  // state is the third field, the start time the 22nd
  std::string skipped;
  for (int i = 0; i < kFieldsBetween; ++i) rest >> skipped;
  rest >> stat.start_ticks;
  if (!rest) return std::nullopt;
  return stat;
}

// Returns when this machine booted, in seconds since 1970; 0 if unknown.
int64_t boot_time_s() {
  std::ifstream in("/proc/stat");
  for (std::string key; in >> key; in.ignore(1 << 20, '\n'))
    if (int64_t value = 0; key == "btime" && in >> value) return value;
  return 0;
}

}  // namespace

ProcessIdentity this_process() {
  ProcessIdentity process;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) process.host = host.data();
  std::ifstream("/proc/sys/kernel/random/boot_id") >> process.boot_id;
  std::error_code error;
  process.pid_namespace = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  process.pid = getpid();
  if (const auto stat = stat_of(process.pid)) process.start_ticks = stat->start_ticks;
  return process;
}

Liveness liveness(const ProcessIdentity& process, int64_t last_sign_s) {
  const ProcessIdentity here = this_process();
  if (process.pid <= 0 || process.boot_id.empty()) return Liveness::kElsewhere;
  if (process.boot_id != here.boot_id) {
    const int64_t boot_s = boot_time_s();
    const bool has_rebooted = process.host == here.host && last_sign_s > 0 && last_sign_s <= boot_s;
    return has_rebooted ? Liveness::kGone : Liveness::kElsewhere;
  }
  if (process.pid_namespace != here.pid_namespace) return Liveness::kElsewhere;
  const auto stat = stat_of(process.pid);
  const bool runs =
      stat && stat->state != 'Z' && stat->state != 'X' && stat->start_ticks == process.start_ticks;
  return runs ? Liveness::kRuns : Liveness::kGone;
}

bool is_stopped(const ProcessIdentity& process) {
  if (liveness(process, 0) != Liveness::kRuns) return false;
  const auto stat = stat_of(process.pid);
  return stat && (stat->state == 'T' || stat->state == 't');
}

}  // namespace ingot
