// The clock of durations within a run.
#pragma once

#include <chrono>

namespace ingot {

using RunClock = std::chrono::steady_clock;

inline double seconds_since(RunClock::time_point start) {
  return std::chrono::duration<double>(RunClock::now() - start).count();
}

}  // namespace ingot
