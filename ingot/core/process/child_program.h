// ChildProgram runs another program, or a copy of this one, concurrently with this one, without a shell. The
// child has a process group of its own. Ctrl-C on the terminal therefore reaches only this program, which
// decides which signals it sends to its children. If this program dies, the kernel sends the child a signal.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

// The open descriptors that become a child's standard streams, and the signal that it gets if its parent
// dies.
struct ChildStreams {
  int input, output, errors;
  int death_signal = SIGTERM;
};

// The part of the machine that a child gets.
struct ChildPlace {
  std::vector<std::string> environment = {};  // "NAME=value", in addition to this process's
  std::vector<int> cpus = {};                 // the only ones it may run on; empty: those of this process
};

class ChildProgram {
 public:
  // Starts arguments[0], a path or a name that is looked up in PATH, with all signals unblocked and at
  // their default action. kInternal error if the system refuses a process. The thread that makes the object
  // must live as long as the child, because its end counts as this program's death.
  ChildProgram(const std::vector<std::string>& arguments, const ChildStreams& streams);
  // Starts a child without a terminal: its standard output is dropped, and its standard error replaces the
  // contents of the file `errors`. kDisk error if the file cannot be written.
  ChildProgram(const std::vector<std::string>& arguments, const std::filesystem::path& errors,
               const ChildPlace& place = {});
  // Calls `work` in a copy of this process, which has only the calling thread and shares the standard
  // streams. The copy ends with exit code 0, or 1 if `work` throws; no destructor and no exit handler runs.
  explicit ChildProgram(const std::function<void()>& work);
  // Kills the child if it still runs.
  ~ChildProgram();
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;

  pid_t pid() const { return pid_; }
  // Returns the exit code if the child has ended: 128 + n if signal n ended it, 127 if the program could
  // not be started. Does not wait.
  std::optional<int> poll();
  // Waits for the child to end, and returns its exit code.
  int wait();
  // Sends the signal if the child has not ended.
  void signal(int number);

 private:
  void start(const std::vector<std::string>& arguments, const ChildStreams& streams, const ChildPlace& place);
  // Calls `run`, which must not return, in a copy of this process.
  void copy_process(const std::string& name, int death_signal, const std::function<void()>& run);
  void look(int options);  // of waitpid

  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

// The path of the running program.
std::filesystem::path this_program();

}  // namespace ingot
