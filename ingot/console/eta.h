// Eta: how long a run will still take, by its recent steps.
#pragma once

#include <optional>

namespace ingot {

// The rate of progress is a mean over the recent steps, in which the weight of a step falls by a factor of e
// per 30 s or per 10 steps, whichever is longer. The first step, which warms everything up, counts only until
// there is a second. What a run does between steps (evaluations, samples, checkpoints) is added in the
// proportion that it has had so far, so that an evaluation does not make the estimate jump.
class Eta {
 public:
  // A finished step: its seconds, the progress that it made (of a run from 0 to 1), and the seconds since the
  // run or its resumption began.
  void add_step(double step_s, double progress, double elapsed_s);
  // Seconds until `progress_left` more is made. nullopt before the first step.
  std::optional<double> seconds_for(double progress_left) const;

 private:
  double recent_s_ = 0, recent_progress_ = 0;  // weighted sums
  double steps_s_ = 0, elapsed_s_ = 0;         // spent in steps; in steps and between them
  int steps_ = 0;                              // 0, 1, or 2 for more
};

}  // namespace ingot
