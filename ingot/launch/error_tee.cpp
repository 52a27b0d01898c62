#include "ingot/launch/error_tee.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "ingot/core/error.h"

namespace ingot {
namespace {

// Drops what the terminal or file does not take.
void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

ErrorTee::ErrorTee() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    fail(ErrorKind::kInternal, "cannot make a pipe: {}", std::strerror(errno));
  read_fd_ = ends[0];
  write_fd_ = ends[1];
  thread_ = std::thread([this] { pass_on(); });
}

ErrorTee::~ErrorTee() {
  finish();
  ::close(read_fd_);
}

void ErrorTee::close_input() {
  if (write_fd_ >= 0) ::close(write_fd_);
  write_fd_ = -1;
}

std::string ErrorTee::finish() {
  close_input();
  if (thread_.joinable()) thread_.join();
  return end_;
}

void ErrorTee::pass_on() {
  std::array<char, 4096> bytes{};
  while (true) {
    const ssize_t count = ::read(read_fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    const std::string_view text(bytes.data(), static_cast<size_t>(count));
    write_all(text);
    end_ += text;
    if (end_.size() > 2 * kRemembered) end_.erase(0, end_.size() - kRemembered);
  }
}

}  // namespace ingot
