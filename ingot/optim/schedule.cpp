#include "ingot/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ingot/core/error.h"

namespace ingot {
namespace {

// From 1 at x = 0 to the floor at x = 1.
double decay(const ScheduleConfig& config, double x) {
  x = std::clamp(x, 0.0, 1.0);
  switch (config.kind) {
    case ScheduleKind::kConstant:
      return 1;
    case ScheduleKind::kCosine:
      return config.floor + (1 - config.floor) * 0.5 * (1 + std::cos(std::numbers::pi * x));
    case ScheduleKind::kLinear:
      return 1 + (config.floor - 1) * x;
  }
  return 1;
}

// Linear warm-up that never reaches the peak by itself: (s + 1) / (warmup + 1), as nanoGPT counts.
double warmup(const ScheduleConfig& config, int64_t step) {
  return static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps + 1);
}

}  // namespace

void ScheduleConfig::validate() const {
  if (warmup_steps < 0)
    fail(ErrorKind::kUsage, "schedule.warmup_steps must not be negative, got {}", warmup_steps);
  if (decay_steps < 0)
    fail(ErrorKind::kUsage, "schedule.decay_steps must not be negative, got {}", decay_steps);
  if (!(floor >= 0 && floor <= 1))
    fail(ErrorKind::kUsage, "schedule.floor must lie in [0, 1], got {}", floor);
}

double schedule_at_step(const ScheduleConfig& config, int64_t step, int64_t total_steps) {
  if (step < config.warmup_steps) return warmup(config, step);
  const int64_t end = config.decay_steps > 0 ? config.decay_steps : total_steps;
  const double length = static_cast<double>(std::max<int64_t>(1, end - config.warmup_steps));
  return decay(config, static_cast<double>(step - config.warmup_steps) / length);
}

double schedule_at_progress(const ScheduleConfig& config, int64_t step, double progress) {
  return std::min(step < config.warmup_steps ? warmup(config, step) : 1.0, decay(config, progress));
}

}  // namespace ingot
