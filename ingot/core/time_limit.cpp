#include "ingot/core/time_limit.h"

#include <algorithm>

#include "ingot/core/median.h"

namespace ingot {

double TimeLimit::median_s() const {
  const size_t count = std::min(steps_, kRecent);
  if (count == 0) return 0;
  std::array<double, kRecent> sorted = steps_s_;
  return median_of(std::span(sorted).first(count));
}

void TimeLimit::begin(Phase phase, int64_t work) {
  phase_ = phase;
  work_ = std::max<int64_t>(1, work);
  if (fixed_s_) return;
  const bool is_timed_step = phase == Phase::kStep && steps_ > 0;
  const double longest_s = longest_s_[static_cast<size_t>(phase)];
  const double least_s = is_timed_step ? kShortest_s : longest_s > 0 ? kRepeated_s : kPatient_s;
  const double usual_s = is_timed_step ? median_s() * static_cast<double>(work_) : longest_s;
  limit_s_.store(std::max(least_s, kFactor * usual_s), std::memory_order_relaxed);
}

void TimeLimit::end(double seconds) {
  if (phase_ == Phase::kStep) {
    steps_s_[steps_++ % kRecent] = seconds / static_cast<double>(work_);
    return;
  }
  double& longest_s = longest_s_[static_cast<size_t>(phase_)];
  longest_s = std::max(longest_s, seconds);
}

}  // namespace ingot
