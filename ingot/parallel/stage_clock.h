// StageClock measures the steps of a pipeline and how long each waited for other stages. On a CUDA device,
// where the host only submits work, the device measures both.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "ingot/core/stream.h"
#include "ingot/train/executor.h"

namespace ingot {

namespace cuda {
class Event;
}  // namespace cuda

class StageClock {
 public:
  // Borrows the stream, on which the steps run.
  explicit StageClock(Stream& stream) : stream_(stream) {}

  // slot: ExecutorStep::slot.
  void begin_step(size_t slot);
  void begin_wait();
  void end_wait();
  void end_step();

  struct Times {
    double step_s = 0, wait_s = 0;
  };
  // Returns the times of the step in a slot. REQUIRES: the stream has passed its end.
  Times times(size_t slot) const;

 private:
  using Clock = std::chrono::steady_clock;
  // The points in time of a step. One of the two is in use. shared_ptr, because builds without CUDA cannot
  // destroy an Event.
  struct Step {
    std::vector<Clock::time_point> on_host = {};
    std::vector<std::shared_ptr<cuda::Event>> on_device = {};  // used again by later steps
    size_t points = 0, end = 0;
    std::vector<std::pair<size_t, size_t>> waits = {};
  };
  size_t now();
  static double seconds(const Step& step, size_t from, size_t to);

  Stream& stream_;
  std::array<Step, kStepSlots> steps_;
  size_t current_ = 0;  // slot of the step that is being measured
};

}  // namespace ingot
