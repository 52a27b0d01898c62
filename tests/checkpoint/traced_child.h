// run_traced() runs a function in a forked child under ptrace. It can kill the child at its n-th system
// call or make its n-th file operation fail.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ingot {

struct Fault {
  int kill_at = 0;  // number (from 1) of the system call at whose entry SIGKILL is sent; 0 = never
  int fail_at = 0;  // number of the file operation that is skipped and returns `error`; 0 = never
  int error = 0;    // errno of the failed operation
};

struct TracedChild {
  std::string report;       // what the body wrote to its report descriptor
  std::vector<long> calls;  // numbers of the system calls, in order
  bool has_finished = false;
  bool has_injected = false;
};

bool can_trace();          // true if ptrace is permitted
bool can_inject_errors();  // true if run_traced() supports fail_at on this architecture

// `body` writes its report to report_fd. It must not throw.
TracedChild run_traced(const std::function<void(int report_fd)>& body, const Fault& fault);

// Returns "f" for fsync and fdatasync, "r" for a rename, "w" for write, and "" for any other call.
std::string call_letter(long call);

}  // namespace ingot
