// ChildProgram runs another program beside this one, without a shell. The child has a process group of its own, so
// that Ctrl-C on the terminal reaches this program alone, which decides what its children are told. If this program
// dies, the kernel sends the child SIGTERM.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

class ChildProgram {
 public:
  // Starts arguments[0], a path, with all signals unblocked and at their default action. Its standard output is
  // dropped, and its standard error replaces the contents of the file `errors`. kInternal error if the system refuses
  // a process; kDisk error if the file cannot be written. The thread that makes the object must live as long as the
  // child, because its end counts as this program's death.
  ChildProgram(const std::vector<std::string>& arguments, const std::filesystem::path& errors);
  // Kills the child if it still runs.
  ~ChildProgram();
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;

  pid_t pid() const { return pid_; }
  // Returns the exit code once the child has ended: 128 + n if signal n ended it, 127 if the program could not be
  // started. Does not wait.
  std::optional<int> poll();
  // Sends the signal if the child has not ended.
  void signal(int number);

 private:
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

// The path of the running program.
std::filesystem::path this_program();

}  // namespace ingot
