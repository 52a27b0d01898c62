// StageClock measures a step of a pipeline and how long it waited for other stages. On a CUDA device, where the host only
// submits work, the device measures both.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "ingot/core/stream.h"

namespace ingot {

namespace cuda {
class Event;
}  // namespace cuda

class StageClock {
 public:
  // Borrows the stream, on which the step runs.
  explicit StageClock(Stream& stream) : stream_(stream) {}

  void begin_step();
  void begin_wait();
  void end_wait();
  void end_step();

  struct Times {
    double step_s = 0, wait_s = 0;
  };
  // Returns the times of the last step. REQUIRES: the stream has passed its end.
  Times times() const;

 private:
  using Clock = std::chrono::steady_clock;
  size_t now();
  double seconds(size_t from, size_t to) const;

  Stream& stream_;
  // Points in time of the step; one of the two is in use. shared_ptr, because builds without CUDA cannot destroy an Event.
  std::vector<Clock::time_point> on_host_;
  std::vector<std::shared_ptr<cuda::Event>> on_device_;  // used again in every step
  size_t points_ = 0;
  size_t wait_begin_ = 0, end_ = 0;
  std::vector<std::pair<size_t, size_t>> waits_;
};

}  // namespace ingot
