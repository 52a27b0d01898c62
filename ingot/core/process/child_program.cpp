#include "ingot/core/process/child_program.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "ingot/core/error.h"

namespace ingot {
namespace {

constexpr int kNotStarted = 127;

// The strings of exec, which must outlive it.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Returns this process's environment with the assignments in place of those of the same names.
std::vector<std::string> environment_with(const std::vector<std::string>& assignments) {
  const auto is_replaced = [&](std::string_view entry) {
    return std::ranges::any_of(assignments, [&](std::string_view assignment) {
      return entry.starts_with(assignment.substr(0, assignment.find('=') + 1));
    });
  };
  std::vector<std::string> all = assignments;
  for (char** entry = environ; *entry; ++entry)
    if (!is_replaced(*entry)) all.emplace_back(*entry);
  return all;
}

cpu_set_t set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return set;
}

struct ChildImage {
  std::vector<char*> arguments, environment;
  cpu_set_t cpus;
};

// Runs in the child after fork(): only functions that are safe in a signal handler may be called.
[[noreturn]] void become(const ChildImage& image, const ChildStreams& streams) {
  if (CPU_COUNT(&image.cpus) > 0) ::sched_setaffinity(0, sizeof image.cpus, &image.cpus);
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &by_default, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(streams.input, STDIN_FILENO);
  ::dup2(streams.output, STDOUT_FILENO);
  ::dup2(streams.errors, STDERR_FILENO);
  ::execvpe(image.arguments[0], image.arguments.data(), image.environment.data());
  ::_exit(kNotStarted);
}

}  // namespace

ChildProgram::ChildProgram(const std::vector<std::string>& arguments, const ChildStreams& streams) {
  start(arguments, streams, {});
}

ChildProgram::ChildProgram(const std::vector<std::string>& arguments, const std::filesystem::path& errors,
                           const ChildPlace& place) {
  const int output_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int error_fd =
      ::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (error_fd < 0) {
    const int error = errno;
    ::close(output_fd);
    fail(ErrorKind::kDisk, "cannot write {}: {}", errors.string(), std::strerror(error));
  }
  try {
    start(arguments, {.input = output_fd, .output = output_fd, .errors = error_fd}, place);
  } catch (...) {
    ::close(output_fd);
    ::close(error_fd);
    throw;
  }
  ::close(output_fd);
  ::close(error_fd);
}

ChildProgram::ChildProgram(const std::function<void()>& work) {
  copy_process("a copy of this process", SIGKILL, [&] {
    try {
      work();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  });
}

void ChildProgram::start(const std::vector<std::string>& arguments, const ChildStreams& streams,
                         const ChildPlace& place) {
  INGOT_CHECK(!arguments.empty(), "ChildProgram: there is no program to start");
  const std::vector<std::string> environment = environment_with(place.environment);
  const ChildImage image{.arguments = pointers_to(arguments),
                         .environment = pointers_to(environment),
                         .cpus = set_of(place.cpus)};
  copy_process(arguments[0], streams.death_signal, [&] { become(image, streams); });
}

void ChildProgram::copy_process(const std::string& name, int death_signal, const std::function<void()>& run) {
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) fail(ErrorKind::kInternal, "cannot start {}: {}", name, std::strerror(errno));
  if (pid_ > 0) return;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, death_signal);
  if (::getppid() != parent) ::_exit(kNotStarted);  // it died before the line above
  run();
}

ChildProgram::~ChildProgram() {
  signal(SIGKILL);
  wait();
}

std::optional<int> ChildProgram::poll() {
  look(WNOHANG);
  return exit_code_;
}

int ChildProgram::wait() {
  while (!exit_code_) look(0);
  return *exit_code_;
}

void ChildProgram::look(int options) {
  if (exit_code_) return;
  int status = 0;
  const pid_t ended = ::waitpid(pid_, &status, options);
  if (ended == pid_) exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (ended < 0 && errno == ECHILD) exit_code_ = 128;  // other code has waited for it
}

void ChildProgram::signal(int number) {
  if (!exit_code_) ::kill(pid_, number);
}

std::filesystem::path this_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

}  // namespace ingot
