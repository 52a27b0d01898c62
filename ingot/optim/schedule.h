// Learning-rate schedules: one function of progress. warm-up, then the shape, down to a floor.
#pragma once

#include <cstdint>

namespace ingot {

enum class ScheduleKind { kConstant, kCosine, kLinear };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  int64_t warmup_steps = 0;  // linear: step s < warmup_steps has (s + 1) / (warmup_steps + 1) of the peak
  double floor = 0.1;        // the last multiplier, as a fraction of the peak
  int64_t decay_steps = 0;   // the step at which the floor is reached; 0: train.steps
  void validate() const;
};

// The multiplier of the peak learning rate at a 0-based step, before that step's update. In [0, 1].
double schedule_at_step(const ScheduleConfig& config, int64_t step, int64_t total_steps);

// The same for a run with a time budget: warm-up counts steps, the decay follows progress, the part of the
// budget in [0, 1] that is spent.
double schedule_at_progress(const ScheduleConfig& config, int64_t step, double progress);

}  // namespace ingot
