// A program on a pseudo-terminal of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

namespace ingot {

// The test reads what the program writes, and types into its terminal.
class PtyRun {
 public:
  explicit PtyRun(const std::string& command, unsigned short rows = 0, unsigned short columns = 0) {
    fd_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd_ < 0 || ::grantpt(fd_) != 0 || ::unlockpt(fd_) != 0) return;
    resize(rows, columns);
    const std::string name = ::ptsname(fd_);
    pid_ = ::fork();
    if (pid_ > 0) return;
    ::setsid();
    const int slave = ::open(name.c_str(), O_RDWR);
    for (int fd = 0; fd < 3; ++fd) ::dup2(slave, fd);
    ::setenv("TERM", "xterm", 1);
    ::execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  ~PtyRun() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    vanish();
  }
  PtyRun(const PtyRun&) = delete;
  PtyRun& operator=(const PtyRun&) = delete;

  bool is_started() const { return pid_ > 0; }
  void vanish() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void send(int signal) const { ::kill(pid_, signal); }
  void type(std::string_view keys) const {
    EXPECT_EQ(::write(fd_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  // Reads until the output contains the text, after `from`; returns false if the other side has closed the
  // terminal.
  bool read_until(const std::string& text, size_t from = 0) {
    while (output_.find(text, from) == std::string::npos)
      if (!read_some()) return false;
    return true;
  }
  // Reads until the text comes, for at most 10 s. Returns what was read since the last call.
  std::string until(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const size_t from = returned_;
    while (output_.find(text, from) == std::string::npos && std::chrono::steady_clock::now() < end &&
           read_for_a_moment())
      continue;
    returned_ = output_.size();
    return output_.substr(from);
  }
  void resize(unsigned short rows, unsigned short columns) const {
    const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(fd_, TIOCSWINSZ, &size);
  }
  // Waits until the program reads keys one by one. Before, the terminal edits lines itself, and its Ctrl-C
  // takes away what was typed.
  void wait_for_raw_mode() const {
    termios modes{};
    while (::tcgetattr(fd_, &modes) == 0 && (modes.c_lflag & ICANON) != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // Waits for output and reads it; returns false if the other side has closed the terminal.
  bool read_some() {
    std::array<char, 4096> buffer;
    const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n > 0) output_.append(buffer.data(), static_cast<size_t>(n));
    return n > 0;
  }
  // Reads what comes within a tenth of a second; returns false if the other side has closed the terminal.
  bool read_for_a_moment() {
    pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, 100) <= 0 || read_some();
  }
  int wait() {
    int status = 0;
    if (fd_ >= 0) read_until("no program says this");
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  const std::string& output() const { return output_; }

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
  std::string output_;
  size_t returned_ = 0;  // the part of it that until() has returned
};

}  // namespace ingot
