// ChildProcess runs a shell command and lets the caller read its output, as popen() does. The child starts
// with all signals unblocked and at their default action, even if this program blocks or ignores some
// (core/process/stop_signals.h).
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>

namespace ingot {

class ChildProcess {
 public:
  // Starts `/bin/sh -c command`.
  explicit ChildProcess(const std::string& command);
  ~ChildProcess();  // waits for the child
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The child's standard output, open until wait(); null if the child could not be started.
  std::FILE* output() { return output_; }
  // Closes the output and waits for the child. Returns true if it was started and ended with exit code 0.
  bool wait();

 private:
  pid_t pid_ = -1;
  std::FILE* output_ = nullptr;
};

}  // namespace ingot
