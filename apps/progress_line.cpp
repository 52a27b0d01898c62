#include "apps/progress_line.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "ingot/console/console.h"

namespace ingot {
namespace {

// Returns true on a terminal that can return to the beginning of a line.
bool is_live_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) && term && std::string_view(term) != "dumb" && *term;
}

size_t columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

ProgressLine::ProgressLine(bool is_quiet) : is_quiet_(is_quiet), is_terminal_(is_live_terminal()) {}
ProgressLine::~ProgressLine() { end(); }

void ProgressLine::show(std::string_view phase, int64_t done, int64_t total) {
  if (is_quiet_) return;
  const Clock::time_point now = Clock::now();
  if (phase != phase_) {
    phase_ = phase;
    begin_ = shown_ = now;
    return;
  }
  const auto pause = is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10'000);
  if (now - shown_ < pause || done <= 0) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const double left = static_cast<double>(std::max<int64_t>(0, total - done)) / static_cast<double>(done);
  std::string text =
      fmt::format("{} {:.0f}% | {} of {} | {}/s | eta {}", phase_,
                  100 * static_cast<double>(done) / static_cast<double>(std::max(done, total)),
                  format_bytes(static_cast<double>(done)), format_bytes(static_cast<double>(total)),
                  format_bytes(static_cast<double>(done) / seconds), format_time(seconds * left));
  if (!is_terminal_) {
    fmt::print(stderr, "{}\n", text);
    return;
  }
  text.resize(std::min(text.size(), columns() - 1));
  const size_t size = text.size();
  text.resize(std::max(size, live_size_), ' ');  // covers the previous text
  live_size_ = size;
  fmt::print(stderr, "\r{}", text);
  std::fflush(stderr);
}

void ProgressLine::end() {
  if (live_size_ > 0) fmt::print(stderr, "\r{}\r", std::string(live_size_, ' '));
  live_size_ = 0;
}

}  // namespace ingot
