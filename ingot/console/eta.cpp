#include "ingot/console/eta.h"

#include <algorithm>
#include <cmath>

namespace ingot {
namespace {

constexpr double kMemory_s = 30;
constexpr double kMemorySteps = 10;

}  // namespace

void Eta::add_step(double step_s, double progress, double elapsed_s) {
  if (!(step_s > 0) || !(progress > 0)) return;
  const double kept = steps_ < 2 ? 0 : std::exp(-std::min(step_s / kMemory_s, 1 / kMemorySteps));
  recent_s_ = kept * recent_s_ + step_s;
  recent_progress_ = kept * recent_progress_ + progress;
  steps_s_ += step_s;
  elapsed_s_ = elapsed_s;
  steps_ = std::min(steps_ + 1, 2);
}

std::optional<double> Eta::seconds_for(double progress_left) const {
  if (steps_ == 0) return std::nullopt;
  const double pauses = std::max(1.0, elapsed_s_ / steps_s_);
  return std::max(0.0, progress_left) * recent_s_ / recent_progress_ * pauses;
}

}  // namespace ingot
