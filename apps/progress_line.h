// ProgressLine shows the progress of a long command on standard error: one live line on a terminal,
// otherwise a line every ten seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace ingot {

class ProgressLine {
 public:
  explicit ProgressLine(bool is_quiet);  // is_quiet: shows nothing
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // done and total are in bytes; a new phase restarts the clock.
  void show(std::string_view phase, int64_t done, int64_t total);
  // Removes the live line. The destructor also calls this.
  void end();

 private:
  using Clock = std::chrono::steady_clock;

  bool is_quiet_, is_terminal_;
  std::string phase_;
  Clock::time_point begin_, shown_;
  size_t live_size_ = 0;
};

}  // namespace ingot
