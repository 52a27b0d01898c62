// Session runs one part of a run, from its start or a checkpoint to its end or the point where it is
// stopped: the loop around the steps, the evaluations and the samples. For run_training (run/run.h) only.
//
// All ranks write a checkpoint together; rank 0 writes samples and report.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ingot/run/guarded_step.h"
#include "ingot/run/run.h"
#include "ingot/run/run_saver.h"
#include "ingot/run/run_state.h"
#include "ingot/run/step_reporter.h"

namespace ingot {

class Session {
 public:
  // The arguments are those of RunState.
  Session(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
          const std::atomic<bool>& is_interrupted, Mesh& mesh, OtherText other_text)
      : run_(config, folder, is_resume, console, is_interrupted, mesh, other_text),
        saver_(run_),
        reporter_(run_, run_.log),
        step_(run_, saver_, reporter_) {}

  TrainOutcome run();
  int64_t steps_done() const { return run_.steps_done(); }
  // Records in run.json that the run ended in an error, and writes report.html as far as the run came.
  void record_failure(const std::string& error, int exit_code) noexcept;

 private:
  void begin();
  void say_hello();
  void name_replaced_products();
  TrainOutcome::Status train();
  TrainOutcome finish(TrainOutcome::Status status);
  std::optional<TrainOutcome::Status> reason_to_end();
  bool is_asked_to_stop();
  int64_t eval_tokens() const;
  bool evaluate();
  void sample();
  void write_aside(const std::function<void()>& write);
  std::vector<MixUse> mix_use() const;
  void write_summary(const std::string& status, const std::string& error = "", int exit_code = 0);

  RunState run_;
  RunSaver saver_;
  StepReporter reporter_;
  GuardedStep step_;
  bool is_step_long_ = true;  // true if the last step of some rank was long, and before the first step
  bool has_named_products_ = false;
  bool is_any_saving_ = false;  // true if some rank still writes its part of a checkpoint
};

}  // namespace ingot
