// A shell command whose output is read, as with popen(). The child starts with every signal unblocked and at
// its default effect, whatever this program blocks or ignores (core/stop_signals.h).
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

  // The child's standard output; null if it could not be started. Open until wait().
  std::FILE* output() { return output_; }
  // Closes the output and waits. Returns true if the child was started and ended with exit code 0.
  bool wait();

 private:
  pid_t pid_ = -1;
  std::FILE* output_ = nullptr;
};

}  // namespace ingot
