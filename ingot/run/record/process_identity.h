// Identifies the process that wrote a record, and tells whether it still runs.
#pragma once

#include <cstdint>
#include <string>

namespace ingot {

struct ProcessIdentity {
  std::string host;           // "node7"
  std::string boot_id;        // from the kernel, new at every boot; empty if unknown
  std::string pid_namespace;  // "pid:[4026531836]", the scope of the pid; empty if unknown
  int64_t pid = 0;
  uint64_t start_ticks = 0;  // since boot; distinguishes the process from a later one with the same pid
};

ProcessIdentity this_process();

enum class Liveness {
  kRuns,
  kGone,
  kElsewhere,  // on another machine or in another container, so this process cannot tell
};

// last_sign_s: the last time at which the process is known to have done something, in seconds since 1970; 0
// if unknown. A process with another boot id that did something after this machine booted belongs to
// another machine with the same name.
Liveness liveness(const ProcessIdentity& process, int64_t last_sign_s);

// Returns true if the process is on this machine and a signal (SIGSTOP, Ctrl-Z) or a debugger has stopped it.
bool is_stopped(const ProcessIdentity& process);

}  // namespace ingot
