#include "tests/checkpoint/traced_child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

namespace ingot {
namespace {

// Returns true for the system calls that write files; failures of others (memory, signals) would test
// something else. close is left out: a close that fails has still closed the file, but a skipped one
// leaves it open.
bool touches_files(long call) {
  switch (call) {
    case SYS_openat:
    case SYS_write:
    case SYS_fsync:
    case SYS_renameat2:
    case SYS_mkdirat:
    case SYS_unlinkat:
    case SYS_getdents64:
#ifdef SYS_open
    case SYS_open:
    case SYS_rename:
    case SYS_mkdir:
    case SYS_rmdir:
    case SYS_unlink:
    case SYS_chmod:
#endif
    case SYS_renameat:
    case SYS_fchmodat:
      return true;
    default:
      return false;
  }
}

#if defined(__x86_64__)
void cancel_call(pid_t child) {
  user_regs_struct regs{};
  ::ptrace(PTRACE_GETREGS, child, 0, &regs);
  regs.orig_rax = ~0ull;
  ::ptrace(PTRACE_SETREGS, child, 0, &regs);
}
void set_result(pid_t child, int error) {
  user_regs_struct regs{};
  ::ptrace(PTRACE_GETREGS, child, 0, &regs);
  regs.rax = static_cast<unsigned long long>(-static_cast<long long>(error));
  ::ptrace(PTRACE_SETREGS, child, 0, &regs);
}
#else
void cancel_call(pid_t) {}
void set_result(pid_t, int) {}
#endif

std::string drain(int fd) {
  std::string text(64, '\0');
  const ssize_t n = ::read(fd, text.data(), text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

// Follows the child from system call to system call until it ends.
void follow(pid_t child, const Fault& fault, TracedChild& out) {
  bool is_failing = false;
  int file_calls = 0;
  while (true) {
    if (::ptrace(PTRACE_SYSCALL, child, 0, 0) != 0) return;
    int status = 0;
    if (::waitpid(child, &status, 0) != child || WIFSIGNALED(status)) return;
    if (WIFEXITED(status)) {
      out.has_finished = WEXITSTATUS(status) == 0;
      return;
    }
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    __ptrace_syscall_info info{};
    ::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info);
    if (info.op == PTRACE_SYSCALL_INFO_EXIT && is_failing) {
      set_result(child, fault.error);
      is_failing = false;
    }
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
    const long call = static_cast<long>(info.entry.nr);
    out.calls.push_back(call);
    if (static_cast<int>(out.calls.size()) == fault.kill_at) ::kill(child, SIGKILL);
    // A write of one byte is the child's report, which must not fail.
    const bool is_report = call == SYS_write && info.entry.args[2] == 1;
    if (fault.fail_at > 0 && touches_files(call) && !is_report && ++file_calls == fault.fail_at) {
      cancel_call(child);
      out.has_injected = is_failing = true;
    }
  }
}

}  // namespace

bool can_trace() {
  static const bool can =
      run_traced([](int fd) { [[maybe_unused]] const auto n = ::write(fd, "A", 1); }, {}).has_finished;
  return can;
}

bool can_inject_errors() {
#if defined(__x86_64__)
  return true;
#else
  return false;
#endif
}

std::string call_letter(long call) {
  if (call == SYS_fsync || call == SYS_fdatasync) return "f";
  if (call == SYS_write) return "w";
  if (call == SYS_renameat || call == SYS_renameat2) return "r";
#ifdef SYS_rename
  if (call == SYS_rename) return "r";
#endif
  return "";
}

TracedChild run_traced(const std::function<void(int)>& body, const Fault& fault) {
  TracedChild out;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return out;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) ::_exit(1);
    ::raise(SIGSTOP);
    body(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  int status = 0;
  if (::waitpid(child, &status, 0) == child && WIFSTOPPED(status) &&
      ::ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0)
    follow(child, fault, out);
  out.report = drain(ends[0]);
  ::close(ends[0]);
  return out;
}

TEST(TracedChild, KillsAndFailsAtTheChosenCall) {
  if (!can_trace()) GTEST_SKIP() << "SKIPPED LOUDLY: ptrace is not permitted here";
  const auto body = [](int fd) {
    const int file = ::open("/dev/null", O_RDONLY);
    [[maybe_unused]] const auto n = ::write(fd, file < 0 && errno == EIO ? "E" : "A", 1);
  };
  EXPECT_EQ(run_traced(body, {}).report, "A");
  EXPECT_EQ(run_traced(body, {.kill_at = 1}).report, "");
  EXPECT_FALSE(run_traced(body, {.kill_at = 1}).has_finished);
  if (can_inject_errors()) {
    EXPECT_EQ(run_traced(body, {.fail_at = 1, .error = EIO}).report, "E");
  }
}

}  // namespace ingot
