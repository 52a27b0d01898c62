// Seen: a SIGUSR1 that arrived after a run had completed, while the program was exiting, killed it: exit code
// 138. Wanted: the run's own exit code.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "ingot/core/process/stop_signals.h"

namespace ingot {
namespace {

TEST(SignalAfterTheEnd, LeavesTheExitCodeUnchanged) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    const pid_t child = fork();
    if (child == 0) {
      {
        const StopSignals signals([](const char*) {});
      }
      raise(signal);
      _exit(7);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 7);
  }
}

}  // namespace
}  // namespace ingot
