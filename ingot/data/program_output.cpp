#include "ingot/data/program_output.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace ingot {
namespace {

// SpawnPlan starts the child in the folder /. Its stdin and stderr are /dev/null, its stdout is the pipe, and
// no signal is blocked.
class SpawnPlan {
 public:
  explicit SpawnPlan(int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addchdir_np(&actions_, "/");
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  bool start(std::vector<std::string> arguments, pid_t& child) const {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::string locale = "LC_ALL=C";
    std::vector<char*> environment = {locale.data()};
    for (char** variable = environ; *variable; ++variable)
      if (!std::string_view(*variable).starts_with("LC_ALL=")) environment.push_back(*variable);
    environment.push_back(nullptr);
    return ::posix_spawnp(&child, argv[0], &actions_, &attributes_, argv.data(), environment.data()) == 0;
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Reads to the end. Returns false if there are more than max_bytes or a read fails.
bool read_all(int fd, size_t max_bytes, std::string& output) {
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n == 0) return true;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || output.size() + static_cast<size_t>(n) > max_bytes) return false;
    output.append(buffer.data(), static_cast<size_t>(n));
  }
}

}  // namespace

std::optional<std::string> program_output(const std::vector<std::string>& arguments, size_t max_bytes) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return std::nullopt;
  pid_t child = 0;
  const bool is_started = SpawnPlan(pipe[1]).start(arguments, child);
  ::close(pipe[1]);
  std::string output;
  const bool is_whole = is_started && read_all(pipe[0], max_bytes, output);
  ::close(pipe[0]);  // a child that is still writing is ended by SIGPIPE
  if (!is_started) return std::nullopt;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!is_whole || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return output;
}

}  // namespace ingot
