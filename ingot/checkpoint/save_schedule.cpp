#include "ingot/checkpoint/save_schedule.h"

#include <algorithm>

namespace ingot {

bool SaveSchedule::is_due(int64_t step, double now_s) const {
  if (retry_at_s_) return now_s >= *retry_at_s_;
  const bool is_by_step = every_steps_ > 0 && step % every_steps_ == 0;
  return is_by_step || (every_s_ > 0 && now_s - last_s_ >= every_s_);
}

void SaveSchedule::saved(double now_s) {
  last_s_ = now_s;
  pause_s_ = 0;
  retry_at_s_.reset();
}

double SaveSchedule::failed(double now_s) {
  pause_s_ = pause_s_ == 0 ? kFirstPause_s : std::min(2 * pause_s_, kLongestPause_s);
  retry_at_s_ = now_s + pause_s_;
  return pause_s_;
}

}  // namespace ingot
