// Runs a function in a forked child under ptrace, and kills it at, or fails, its n-th system call.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ingot {

struct Fault {
  int kill_at = 0;  // SIGKILL on entering the n-th system call, counted from 1; 0: never
  int fail_at = 0;  // the n-th call of those that touch files is not made and returns `error`; 0: never
  int error = 0;    // errno
};

struct TracedChild {
  std::string report;       // what the body wrote to its report descriptor
  std::vector<long> calls;  // numbers of the system calls, in order
  bool has_finished = false;
  bool has_injected = false;
};

bool can_trace();          // whether ptrace is permitted
bool can_inject_errors();  // whether this architecture is known to run_traced's fail_at

// The body gets a descriptor to write its report to, and must not let an exception out.
TracedChild run_traced(const std::function<void(int report_fd)>& body, const Fault& fault);

// f: fsync, fdatasync; r: rename; w: write; ' ' removed: "" for anything else.
std::string call_letter(long call);

}  // namespace ingot
