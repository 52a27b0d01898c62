#include "ingot/parallel/stage_clock.h"

#include "ingot/core/cuda/cuda_device.h"

namespace ingot {

void StageClock::begin_step() {
  points_ = 0;
  on_host_.clear();
  waits_.clear();
  now();
}

void StageClock::begin_wait() { wait_begin_ = now(); }

void StageClock::end_wait() { waits_.emplace_back(wait_begin_, now()); }

void StageClock::end_step() { end_ = now(); }

// Records a point in time and returns its number.
size_t StageClock::now() {
  if constexpr (kHasCuda) {
    if (stream_.device == Device::kCuda && stream_.backing == Backing::kMemory) {
      if (points_ == on_device_.size()) on_device_.push_back(std::make_shared<cuda::Event>());
      on_device_[points_]->record(stream_);
      return points_++;
    }
  }
  on_host_.push_back(Clock::now());
  return points_++;
}

double StageClock::seconds(size_t from, size_t to) const {
  if constexpr (kHasCuda) {
    if (on_host_.empty()) return on_device_[to]->seconds_since(*on_device_[from]);
  }
  return std::chrono::duration<double>(on_host_[to] - on_host_[from]).count();
}

StageClock::Times StageClock::times() const {
  Times times{.step_s = seconds(0, end_)};
  for (const auto& [from, to] : waits_) times.wait_s += seconds(from, to);
  return times;
}

}  // namespace ingot
