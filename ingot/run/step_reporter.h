// StepReporter reports the steps of a run: the console's line, the line of metrics.jsonl, and the speed.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "ingot/console/eta.h"
#include "ingot/run/mfu.h"
#include "ingot/run/progress.h"
#include "ingot/run/record/run_log.h"
#include "ingot/train/guard.h"
#include "ingot/train/noise_scale.h"
#include "ingot/train/trainer.h"

namespace ingot {

// The data of a step's log line that is not in its result.
struct StepLine {
  RunPosition at = {}, after = {};  // positions before and after the step
  RunClock::time_point begin = {};
  std::vector<MetricsField> phases = {};
};

class StepReporter {
 public:
  // Borrows all arguments. All ranks construct it together.
  StepReporter(const RunSetup& setup, const Trainer& trainer, const Guard& guard, const Progress& progress,
               RunLog& log);

  // Called once when training starts.
  void report_arenas();
  void report(const StepResult& result, const StepLine& line);
  // Prints how long ranks waited for stages, as the mean over all ranks, if the model is split into stages.
  void report_bubble();

  double last_step_s() const { return last_step_s_; }  // infinite before the first step
  // Sets the fields of the summary that this class knows.
  void fill(RunSummary& summary) const;

 private:
  std::optional<double> seconds_left(const RunPosition& position) const;
  std::vector<MetricsField> fields(const StepResult& result, const StepLine& line, const StepReport& report);

  const RunSetup& setup_;
  const Trainer& trainer_;
  const Guard& guard_;
  const Progress& progress_;
  RunLog& log_;
  double flops_per_token_;
  MfuMeter mfu_;
  Eta eta_;
  RunClock::time_point last_report_ = {};
  double train_s_ = 0;  // seconds spent in steps
  double last_step_s_ = std::numeric_limits<double>::infinity();
  double stages_wait_s_ = 0, stages_s_ = 0;  // pipeline: seconds waiting for messages, and in total
  NoiseScale noise_;
  int64_t non_finite_gradients_ = 0;  // skipped by the optimizer
};

}  // namespace ingot
