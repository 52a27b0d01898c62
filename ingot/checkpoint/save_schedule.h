// SaveSchedule decides when a run saves a checkpoint. It uses neither files nor a clock: times are
// arguments, in seconds since the training began.
#pragma once

#include <cstdint>
#include <optional>

namespace ingot {

class SaveSchedule {
 public:
  // Pauses before a failed save is repeated: the first one, doubled after every further failure up
  // to the longest.
  static constexpr double kFirstPause_s = 30, kLongestPause_s = 600;

  // Saves every every_steps steps, and when the last save is every_s seconds old; 0 turns either off.
  SaveSchedule(int64_t every_steps, double every_s) : every_steps_(every_steps), every_s_(every_s) {}

  // Returns true if a save is due after this step. After a failed save, only its repetition is due.
  bool is_due(int64_t step, double now_s) const;
  // True if is_due depends on the clock; ranks with different clocks must then agree on the result.
  bool reads_clock() const { return retry_at_s_ || every_s_ > 0; }

  void saved(double now_s);
  // Returns the pause until the next attempt, in seconds.
  double failed(double now_s);

 private:
  int64_t every_steps_;
  double every_s_;
  double last_s_ = 0;   // time of the last save; 0 if there is none yet
  double pause_s_ = 0;  // pause after the last failure; 0 if the last attempt succeeded
  std::optional<double> retry_at_s_ = {};
};

}  // namespace ingot
