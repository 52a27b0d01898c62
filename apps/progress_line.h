// How far a long command is, on standard error: one live line on a terminal, a line every ten seconds
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace ingot {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // done and total are bytes; a new phase begins its own clock.
  void show(std::string_view phase, int64_t done, int64_t total);
  // Removes the live line. The destructor does it too.
  void end();

 private:
  using Clock = std::chrono::steady_clock;

  bool is_terminal_;
  std::string phase_;
  Clock::time_point begin_, shown_;
  size_t live_size_ = 0;
};

}  // namespace ingot
