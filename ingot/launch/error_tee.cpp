#include "ingot/launch/error_tee.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
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

ErrorTee::ErrorTee() : fd_(::memfd_create("ingot-errors", MFD_CLOEXEC)) {
  // O_APPEND: all ranks of a machine write at the end.
  if (fd_ < 0 || ::fcntl(fd_, F_SETFL, O_APPEND) != 0)
    fail(ErrorKind::kInternal, "cannot make a file in memory: {}", std::strerror(errno));
  thread_ = std::thread([this] { follow(); });
}

ErrorTee::~ErrorTee() {
  finish();
  ::close(fd_);
}

std::string ErrorTee::finish() {
  is_over_ = true;
  if (thread_.joinable()) {
    thread_.join();
    pass_on();
  }
  return end_;
}

void ErrorTee::follow() {
  while (!is_over_) {
    pass_on();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void ErrorTee::pass_on() {
  std::array<char, 4096> bytes{};
  while (true) {
    const ssize_t count = ::pread(fd_, bytes.data(), bytes.size(), read_);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    read_ += count;
    const std::string_view text(bytes.data(), static_cast<size_t>(count));
    write_all(text);
    end_ += text;
    if (end_.size() > 2 * kRemembered) end_.erase(0, end_.size() - kRemembered);
    constexpr off_t kFreed = off_t{1} << 16;
    if (read_ - freed_ < kFreed) continue;
    const off_t whole = (read_ - freed_) / kFreed * kFreed;
    if (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, freed_, whole) == 0) freed_ += whole;
  }
}

}  // namespace ingot
