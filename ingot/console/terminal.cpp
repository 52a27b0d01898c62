#include "ingot/console/terminal.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ingot {
namespace {

constexpr size_t kPiece = 4096;    // a pipe that poll() calls writable accepts this much at once
constexpr int kSlice_ms = 50;      // between two checks of is_stop_requested
constexpr int kLastWait_ms = 200;  // total wait for a reader after the run was asked to end

// Opens the pipe or terminal a second time, for this program only, because O_NONBLOCK belongs to the open
// file, which the shell and other programs share. Returns -1 if that is not allowed.
int open_again(int fd) {
  return ::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

Terminal::Terminal() : Terminal(Options{}) {}

Terminal::Terminal(const Options& options) : options_(options) {
  std::fflush(stdout);  // so that output printed earlier comes first
  const char* term = std::getenv("TERM");
  const bool is_terminal = isatty(options_.fd) != 0;
  is_live_ = options_.allows_live && is_terminal && term && *term && std::strcmp(term, "dumb") != 0;
  struct stat status {};
  if (::fstat(options_.fd, &status) != 0) return;
  is_file_ = S_ISREG(status.st_mode);
  if (is_terminal || S_ISFIFO(status.st_mode)) own_fd_ = open_again(options_.fd);
}

Terminal::~Terminal() {
  if (own_fd_ >= 0) ::close(own_fd_);
}

int Terminal::columns() const {
  if (!is_live_) return 0;
  constexpr int kUsual = 80;
  winsize size{};
  return ioctl(options_.fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

int Terminal::rows() const {
  if (!is_live_) return 0;
  constexpr int kUsual = 24;
  winsize size{};
  return ioctl(options_.fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : kUsual;
}

// Waits for room to write. Returns false if there is none and the run must not wait longer. has_refused:
// poll() reported room, but the write did not find enough (a terminal writes two characters for a line end).
bool Terminal::wait_for_room(bool has_refused) {
  if (is_file_) return true;
  while (true) {
    pollfd waiting{.fd = own_fd_ >= 0 ? own_fd_ : options_.fd, .events = POLLOUT, .revents = 0};
    const int slice_ms = waited_ms_ >= kLastWait_ms ? 0 : kSlice_ms;
    if (has_refused)
      ::poll(nullptr, 0, slice_ms);
    else if (::poll(&waiting, 1, slice_ms) > 0)
      return true;  // on an error, the write reports it
    if (options_.is_stop_requested && options_.is_stop_requested->load()) waited_ms_ += kSlice_ms;
    if (waited_ms_ >= kLastWait_ms) return false;
    has_refused = false;
  }
}

void Terminal::write(std::string_view text) {
  const int fd = own_fd_ >= 0 ? own_fd_ : options_.fd;
  bool has_refused = false;
  while (!text.empty() && why_gone_.empty()) {
    if (!wait_for_room(has_refused)) return;
    const ssize_t written = ::write(fd, text.data(), std::min(text.size(), kPiece));
    has_refused = written < 0 && errno == EAGAIN;
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == ENOSPC || errno == EDQUOT) {
      return;  // a full disk may have room again later
    } else if (errno != EINTR && errno != EAGAIN) {
      why_gone_ = std::strerror(errno);
    }
  }
}

}  // namespace ingot
