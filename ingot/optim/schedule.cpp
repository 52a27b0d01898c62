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
  const double s = static_cast<double>(step), warmup = static_cast<double>(config.warmup_steps);
  if (step < config.warmup_steps) return (s + 1) / (warmup + 1);
  const double end = static_cast<double>(config.decay_steps > 0 ? config.decay_steps : total_steps);
  return decay(config, (s - warmup) / std::max(1.0, end - warmup));
}

double schedule_at_progress(const ScheduleConfig& config, double progress, double warmup_fraction) {
  if (progress < warmup_fraction) return std::max(progress, 0.01 * warmup_fraction) / warmup_fraction;
  return decay(config, (progress - warmup_fraction) / std::max(1e-9, 1 - warmup_fraction));
}

}  // namespace ingot
