// Eta estimates the remaining time of a run from its recent steps.
#pragma once

#include <optional>

namespace ingot {

// The rate of progress is an exponential mean over the recent steps. A step's weight falls by a factor of e
// per 30 s or per 10 steps, whichever is longer. The first step is slow because it warms everything up, so
// it counts only until there is a second one. The time between steps (evaluations, samples,
// checkpoints) is added in its proportion so far, so that an evaluation does not make the estimate jump.
class Eta {
 public:
  // Records a finished step: its duration, the progress it made (a whole run makes 1), and the time since
  // the run started or was resumed.
  void add_step(double step_s, double progress, double elapsed_s);
  // Returns the seconds that `progress_left` more progress will take, or nullopt before the first step.
  std::optional<double> seconds_for(double progress_left) const;

 private:
  double recent_s_ = 0, recent_progress_ = 0;  // weighted sums
  double steps_s_ = 0, elapsed_s_ = 0;         // time in steps; time in steps and between them
  int steps_ = 0;                              // 0, 1, or 2 for two and more
};

}  // namespace ingot
