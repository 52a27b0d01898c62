// SaveSchedule: when a run saves a checkpoint. It knows neither files nor a clock: times are arguments, in
// seconds since the training began.
#pragma once

#include <cstdint>
#include <optional>

namespace ingot {

class SaveSchedule {
 public:
  // The pauses before the first attempt after a failed save, and after several; each doubles the one before
  // it.
  static constexpr double kFirstPause_s = 30, kLongestPause_s = 600;

  // A save every so many steps, and whenever the last one is so old; 0 turns either off.
  SaveSchedule(int64_t every_steps, double every_s) : every_steps_(every_steps), every_s_(every_s) {}

  // After a step. While a failed save waits for its next attempt, nothing else makes one due.
  bool is_due(int64_t step, double now_s) const;
  // True if is_due depends on the clock: then ranks with clocks of their own must agree on it.
  bool reads_clock() const { return retry_at_s_ || every_s_ > 0; }

  void saved(double now_s);
  // Returns the pause until the next attempt, in seconds.
  double failed(double now_s);

 private:
  int64_t every_steps_;
  double every_s_;
  double last_s_ = 0;   // when the last checkpoint was saved, or the training began
  double pause_s_ = 0;  // after the last failure; 0: the last attempt succeeded
  std::optional<double> retry_at_s_ = {};
};

}  // namespace ingot
