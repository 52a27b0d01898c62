// RunPlan holds a run's length and gives the learning rate, momentum and batch size at every position in
// it. It is a pure function of the configuration and the position, so a resumed run gets the same values.
#pragma once

#include <cstdint>

#include "ingot/config/config.h"
#include "ingot/optim/optimizer.h"
#include "ingot/optim/schedule.h"

namespace ingot {

// Sets train.steps to the steps of train.epochs, which becomes 0. windows: those of an epoch. Throws the
// errors of RunConfig::validate.
void complete_epochs(RunConfig& config, int64_t windows);

class RunPlan {
 public:
  // kUsage error if the schedule or the batch ramp does not fit the run's length.
  explicit RunPlan(const RunConfig& config);

  const RunLength& length() const { return length_; }
  const BatchRamp& ramp() const { return ramp_; }

  // Returns the position before a step.
  RunPosition position(int64_t step, int64_t tokens, double time_s) const {
    return {.step = step, .tokens = tokens, .time_s = time_s, .step_tokens = ramp_.step_tokens(tokens)};
  }
  double progress(const RunPosition& position) const;  // in [0, 1]
  bool is_finished(const RunPosition& position) const { return progress(position) >= 1; }

  // The values for the next step.
  double lr(const RunPosition& position) const { return peak_lr_ * schedule_.lr(position); }
  double momentum(const RunPosition& position) const {
    return schedule_.momentum(position).value_or(momentum_.at(position.step + 1));
  }
  StepInputs inputs(const RunPosition& position) const {
    return {.lr = lr(position),
            .momentum = schedule_.momentum(position),
            .window = schedule_.window(position).value_or(0),
            .wants_stats = false};
  }
  int64_t micro_batches(const RunPosition& position) const { return ramp_.micro_batches(position.tokens); }

  // Steps of the whole run if no batch is skipped. In a run limited by time they are unknown, and
  // this is train.steps.
  int64_t steps() const { return steps_; }

 private:
  double peak_lr_;
  MomentumRamp momentum_;  // the optimizer's own momentum warm-up
  RunLength length_;
  BatchRamp ramp_;
  Schedule schedule_;
  int64_t steps_;
};

}  // namespace ingot
