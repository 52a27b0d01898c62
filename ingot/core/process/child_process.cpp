#include "ingot/core/process/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

extern char** environ;

namespace ingot {
namespace {

// Starts the command with to_fd as its standard output. Returns -1 if it cannot be started.
pid_t spawn(const std::string& command, int to_fd) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_fd, STDOUT_FILENO);
  const std::array<const char*, 4> arguments{"sh", "-c", command.c_str(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/bin/sh", &actions, &attributes,
                                const_cast<char* const*>(arguments.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error == 0 ? pid : -1;
}

}  // namespace

ChildProcess::ChildProcess(const std::string& command) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  pid_ = spawn(command, ends[1]);
  ::close(ends[1]);
  if (pid_ > 0) output_ = ::fdopen(ends[0], "r");
  if (!output_) ::close(ends[0]);
}

ChildProcess::~ChildProcess() { wait(); }

bool ChildProcess::wait() {
  if (output_) std::fclose(output_);
  output_ = nullptr;
  if (pid_ <= 0) return false;
  int status = 0;
  pid_t ended = -1;
  do {
    ended = ::waitpid(pid_, &status, 0);
  } while (ended < 0 && errno == EINTR);
  pid_ = -1;
  return ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace ingot
