// GuardedStep makes the steps of a run: it submits a step, collects its result, asks the guard for a verdict,
// and makes the update, skips the batch, rolls back or ends the run.
#pragma once

#include <deque>

#include "ingot/run/run_saver.h"
#include "ingot/run/state_watch.h"
#include "ingot/run/step_reporter.h"

namespace ingot {

class GuardedStep {
 public:
  GuardedStep(RunState& run, RunSaver& saver, StepReporter& reporter)
      : run_(run), saver_(saver), reporter_(reporter), watch_(run.config.guard, run.world, run.trainer) {}

  // The caller calls it after the state is initialised or loaded, and before the first step.
  void begin() { watch_.state_changed(); }
  // Checks the state; the caller calls it before it saves the state. Returns false if the state was corrupt
  // and the run is back at a checkpoint.
  bool is_sound();

  // Submits the next step, and collects the steps that are due. Returns false if a batch was skipped or the
  // run is back before an earlier step; no evaluation, sample or checkpoint is due then. may_abandon: a
  // signal ends the step between two micro-batches.
  bool make(bool may_abandon);
  // Collects all steps in flight. Returns false if the run is back before an earlier step.
  bool drain();

 private:
  void pass_excluded_samples();
  void begin_time_limit(int64_t micro_batches);
  bool collect();
  void end_line(StepLine& line);
  void reject(const Verdict& verdict, const RunPosition& at);
  void roll_back(const Verdict& verdict, const RunPosition& at);
  void go_back();
  bool is_state_sound(bool is_saving);
  StepResult verified(const StepResult& first, const RunPosition& at);

  RunState& run_;
  RunSaver& saver_;
  StepReporter& reporter_;
  StateWatch watch_;
  int corruptions_ = 0;  // found since furthest_step_ last grew
  int64_t furthest_step_ = 0;
  std::deque<StepLine> lines_;  // those of the trainer's steps in flight, oldest first
};

}  // namespace ingot
