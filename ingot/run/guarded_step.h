// GuardedStep makes the steps of a run: it submits a step, collects its result, asks the guard for a verdict,
// and makes the update, skips the batch, rolls back or ends the run.
#pragma once

#include <deque>

#include "ingot/run/run_saver.h"
#include "ingot/run/step_reporter.h"

namespace ingot {

class GuardedStep {
 public:
  GuardedStep(RunState& run, RunSaver& saver, StepReporter& reporter)
      : run_(run), saver_(saver), reporter_(reporter) {}

  // Submits the next step, and collects as many as are due. Returns false if a batch was skipped or the run
  // is back before an earlier step; nothing is due then. may_abandon: a signal ends the step between two
  // micro-batches.
  bool make(bool may_abandon);
  // Collects all steps in flight. Returns false if the run is back before an earlier step.
  bool drain();

 private:
  struct Submitted {
    StepLine line;
    bool is_asynchronous = false, wants_stats = false;
  };

  void pass_excluded_samples();
  void begin_time_limit(int64_t micro_batches);
  bool collect();
  void end_line(StepLine& line);
  void reject(const Verdict& verdict, const RunPosition& at);
  void roll_back(const Verdict& verdict, const RunPosition& at);

  RunState& run_;
  RunSaver& saver_;
  StepReporter& reporter_;
  std::deque<Submitted> submitted_;  // the steps in flight, oldest first
};

}  // namespace ingot
