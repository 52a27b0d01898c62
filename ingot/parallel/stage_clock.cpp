#include "ingot/parallel/stage_clock.h"

#include "ingot/core/cuda/cuda_device.h"

namespace ingot {

void StageClock::begin_step(size_t slot) {
  current_ = slot;
  Step& step = steps_[slot];
  step.points = 0;
  step.on_host.clear();
  step.waits.clear();
  now();
}

void StageClock::begin_wait() { steps_[current_].waits.emplace_back(now(), 0); }

void StageClock::end_wait() { steps_[current_].waits.back().second = now(); }

void StageClock::end_step() { steps_[current_].end = now(); }

// Records a point in time of the current step and returns its number.
size_t StageClock::now() {
  Step& step = steps_[current_];
  if constexpr (kHasCuda) {
    if (stream_.device == Device::kCuda && stream_.backing == Backing::kMemory) {
      if (step.points == step.on_device.size()) step.on_device.push_back(std::make_shared<cuda::Event>());
      step.on_device[step.points]->record(stream_);
      return step.points++;
    }
  }
  step.on_host.push_back(Clock::now());
  return step.points++;
}

double StageClock::seconds(const Step& step, size_t from, size_t to) {
  if constexpr (kHasCuda) {
    if (step.on_host.empty()) return step.on_device[to]->seconds_since(*step.on_device[from]);
  }
  return std::chrono::duration<double>(step.on_host[to] - step.on_host[from]).count();
}

StageClock::Times StageClock::times(size_t slot) const {
  const Step& step = steps_[slot];
  Times times{.step_s = seconds(step, 0, step.end)};
  for (const auto& [from, to] : step.waits) times.wait_s += seconds(step, from, to);
  return times;
}

}  // namespace ingot
