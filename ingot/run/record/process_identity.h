// Which process wrote a record, and whether it still runs.
#pragma once

#include <cstdint>
#include <string>

namespace ingot {

struct ProcessIdentity {
  std::string host;           // "node7"
  std::string boot_id;        // the kernel's, new at every boot; empty if it is not known
  std::string pid_namespace;  // "pid:[4026531836]"; a pid means something only within it; empty: not known
  int64_t pid = 0;
  uint64_t start_ticks = 0;  // since boot: tells the process from a later one with the same pid
};

ProcessIdentity this_process();

enum class Liveness {
  kRuns,
  kGone,
  kElsewhere,  // on another machine or in another container: it cannot be told from here
};

// last_sign_s: seconds since 1970 of the last thing that the process is known to have done; 0: not known. A
// process that was seen after this machine has booted, under another boot id, is one of another machine with
// the same name.
Liveness liveness(const ProcessIdentity& process, int64_t last_sign_s);

}  // namespace ingot
