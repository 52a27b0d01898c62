// GuardedStep makes the steps of a run: it submits a step, collects its result, asks the guard for a verdict,
// and makes the update, skips the batch, rolls back or ends the run.
#pragma once

#include <deque>
#include <string>

#include "ingot/run/run_saver.h"
#include "ingot/run/state_watch.h"
#include "ingot/run/step_reporter.h"

namespace ingot {

class GuardedStep {
 public:
  // Borrows all arguments. progress: the steps are counted there, and taken back.
  GuardedStep(const RunSetup& setup, RunServices& services, Progress& progress, RunSaver& saver,
              StepReporter& reporter)
      : setup_(setup),
        services_(services),
        progress_(progress),
        saver_(saver),
        reporter_(reporter),
        watch_(setup.config.guard, setup.world, services.trainer) {}

  // Checks the state; the caller calls it before it saves the state (is_saving). Returns false if the state
  // was corrupt and the run is back at a checkpoint.
  bool is_sound(bool is_saving = true);
  // Returns the position before the next step.
  RunPosition position() const;

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
  void log_event(const std::string& event, const std::string& reason, int64_t step, const RunPosition& at);
  StepResult verified(const StepResult& first, const RunPosition& at);

  const RunSetup& setup_;
  RunServices& services_;
  Progress& progress_;
  RunSaver& saver_;
  StepReporter& reporter_;
  StateWatch watch_;
  int corruptions_ = 0;  // found since furthest_step_ last grew
  int64_t furthest_step_ = 0;
  std::deque<StepLine> lines_;  // those of the trainer's steps in flight, oldest first
};

}  // namespace ingot
