#include "ingot/console/terminal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "ingot/console/console.h"
#include "ingot/core/file.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

class TerminalTest : public ::testing::Test {
 protected:
  TerminalTest() : old_handler_(std::signal(SIGPIPE, SIG_IGN)) {
    const char* term = std::getenv("TERM");
    if (term) term_ = term;
    setenv("TERM", "xterm", 1);
  }
  ~TerminalTest() override {
    setenv("TERM", term_.c_str(), 1);
    std::signal(SIGPIPE, old_handler_);
    for (const int fd : {read_fd_, write_fd_})
      if (fd >= 0) ::close(fd);
  }

  void open_pipe() {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    read_fd_ = ends[0];
    write_fd_ = ends[1];
  }
  // read_fd_ is the terminal emulator's end; the program writes to write_fd_.
  void open_pty() {
    read_fd_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (read_fd_ < 0 || ::grantpt(read_fd_) != 0 || ::unlockpt(read_fd_) != 0)
      GTEST_SKIP() << "no pseudo-terminals here";
    write_fd_ = ::open(::ptsname(read_fd_), O_WRONLY | O_NOCTTY);
    ASSERT_GE(write_fd_, 0);
  }
  std::string read_some() {
    char buffer[256];
    const ssize_t n = ::read(read_fd_, buffer, sizeof(buffer));
    return {buffer, static_cast<size_t>(std::max<ssize_t>(n, 0))};
  }
  void close_reader() {
    ::close(read_fd_);
    read_fd_ = -1;
  }

  int read_fd_ = -1, write_fd_ = -1;
  std::string term_;
  void (*old_handler_)(int);
};

TEST_F(TerminalTest, PipeIsNotLiveAndGetsTheText) {
  open_pipe();
  Terminal terminal({.fd = write_fd_});
  EXPECT_FALSE(terminal.is_live());
  EXPECT_EQ(terminal.columns(), 0);
  terminal.write("hello\n");
  EXPECT_EQ(read_some(), "hello\n");
  EXPECT_EQ(terminal.why_gone(), "");
}

TEST_F(TerminalTest, WidthIsAskedAnew) {
  open_pty();
  if (IsSkipped()) return;
  const Terminal terminal({.fd = write_fd_});
  EXPECT_TRUE(terminal.is_live());
  EXPECT_EQ(terminal.columns(), 80);  // the default, because a new pty has no size
  for (const unsigned short columns : {100, 60}) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(ioctl(read_fd_, TIOCSWINSZ, &size), 0);
    EXPECT_EQ(terminal.columns(), columns);
  }
  EXPECT_FALSE(Terminal({.fd = write_fd_, .allows_live = false}).is_live());
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(Terminal({.fd = write_fd_}).is_live());
}

// Regression: after `| head` had ended, the first line that was written ended the run.
TEST_F(TerminalTest, ClosedPipeIsNoEndAndTheLogSaysSo) {
  open_pipe();
  const TemporaryFolder folder;
  const std::filesystem::path log = folder.path() / "train.log";
  {
    Console console(std::make_unique<Terminal>(Terminal::Options{.fd = write_fd_}));
    console.open_log(log);
    console.line("one");
    close_reader();
    console.line("two");
    console.line("three");
  }
  EXPECT_EQ(read_file(log),
            "one\nwarning: standard output has gone (Broken pipe); the run goes on without a console\n"
            "two\nthree\n");
}

TEST_F(TerminalTest, VanishedTerminalIsNoEnd) {
  open_pty();
  if (IsSkipped()) return;
  Terminal terminal({.fd = write_fd_});
  terminal.write("one\n");
  close_reader();
  terminal.write("two\n");
  EXPECT_EQ(terminal.why_gone(), "Input/output error");
}

// A reader that stops reading blocks the run, as with any pipe, but only until the run is asked to end.
TEST_F(TerminalTest, DoesNotWaitForAReaderOnceToldToEnd) {
  std::atomic<bool> is_told = true;
  const std::string text(1 << 20, 'x');
  open_pipe();
  Terminal to_pipe({.fd = write_fd_, .is_stop_requested = &is_told});
  to_pipe.write(text);  // this is more than a pipe holds, so the test hangs if write() blocks
  EXPECT_EQ(to_pipe.why_gone(), "");
  for (const int fd : {read_fd_, write_fd_}) ::close(fd);
  read_fd_ = write_fd_ = -1;
  open_pty();
  if (IsSkipped()) return;
  Terminal to_terminal({.fd = write_fd_, .is_stop_requested = &is_told});
  for (int i = 0; i < 1000; ++i) to_terminal.write("a line of some length that nothing reads\n");
  EXPECT_EQ(to_terminal.why_gone(), "");
}

TEST_F(TerminalTest, FileGetsAllOfIt) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  std::atomic<bool> is_told = true;
  Terminal terminal({.fd = fileno(file), .is_stop_requested = &is_told});
  terminal.write(std::string(100'000, 'x'));
  EXPECT_EQ(::lseek(fileno(file), 0, SEEK_END), 100'000);
  std::fclose(file);
}

}  // namespace
}  // namespace ingot
