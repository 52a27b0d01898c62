// Session: one part of a run, from its start or a checkpoint to where it ends or is stopped: the loop around
// the trainer's steps, and everything that it leaves behind. For run_training (train/run.h) only.
//
// Where several ranks train, each has its session, and all go through the same steps: whatever one of them
// alone could know (a signal, the clock, the newest good checkpoint) is agreed upon first. All write a
// checkpoint together, rank 0 samples and report.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>

#include "ingot/train/checkpoint.h"
#include "ingot/train/console.h"
#include "ingot/train/guard.h"
#include "ingot/train/run.h"
#include "ingot/train/run_data.h"
#include "ingot/train/run_folder.h"
#include "ingot/train/run_log.h"
#include "ingot/train/run_plan.h"

namespace ingot {

class Session {
 public:
  Session(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
          const std::atomic<bool>& is_interrupted, std::unique_ptr<TrainerParts> parts);

  TrainOutcome run();
  int64_t steps_done() const { return trainer_.steps_done(); }
  // run.json says that the run ended in an error.
  void record_failure() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  bool is_lead() const { return all_.rank() == 0; }
  bool is_asked_to_stop() const;
  double spent_s() const;
  void check_data_of_ranks();
  std::optional<Checkpoint> newest_good();
  std::optional<Checkpoint> find_resume_point(bool is_resume);
  std::optional<std::string> resumed_tokenizer() const;
  std::optional<int64_t> first_step_again() const;
  void resume();
  void restore(const Checkpoint& checkpoint);
  void say_hello();
  RunPosition position() const;
  bool is_finished() const { return plan_.is_finished(position()); }
  bool is_due(int64_t every) const { return every > 0 && trainer_.steps_done() % every == 0; }
  // A step as its line says it.
  struct StepLine {
    RunPosition at, after;  // before and after it
    Clock::time_point begin;
    std::vector<MetricsField> phases = {};
  };
  std::optional<TrainOutcome::Status> reason_to_end();
  bool is_anything_due() const;
  bool step();
  // Steps that a device judges by itself (Trainer::give). False: one was not finite, and the run is back
  // before it.
  bool give_step(StepLine line, const StepInputs& inputs);
  bool read_given();
  bool settle();
  void end_line(StepLine& line);
  void pass_excluded_samples();
  void reject(const Verdict& verdict, const RunPosition& at);
  void roll_back(const Verdict& verdict, const RunPosition& at);
  void log_event(const std::string& event, const std::string& reason, int64_t step, const RunPosition& at);
  void report_step(const StepResult& result, const StepLine& line);
  void report_bubble();
  void evaluate();
  void sample();
  void save();
  void write_summary(const std::string& status);

  RunFolder& folder_;
  Console& console_;
  const std::atomic<bool>& is_interrupted_;
  Reducer& all_;
  Clock::time_point start_ = Clock::now();
  CheckpointStore store_;
  std::optional<Checkpoint> resumed_;
  RunData data_;
  RunConfig config_;
  Trainer trainer_;
  Sampler sampler_;
  Loader loader_;
  RunPlan plan_;
  Guard guard_;
  RunLog log_;
  double peak_gflops_;
  TrainerState state_;
  Clock::time_point training_start_;
  Clock::time_point last_report_;            // of a step
  std::vector<StepLine> given_;              // of the steps that the trainer has been given and not yet read
  bool is_next_judged_here_ = false;         // one step after what a device has found
  double progress_before_ = 0;               // of this part of the run
  double spent_before_s_ = 0;                // of the time budget, in earlier parts of the run
  double train_s_ = 0;                       // in steps
  double stages_wait_s_ = 0, stages_s_ = 0;  // of a pipeline: for messages, and in all
  std::optional<EvalResult> last_eval_;
  int64_t last_eval_step_ = -1, last_save_step_ = -1, last_sample_step_ = -1;
  int64_t non_finite_gradients_ = 0;  // that the optimizer passed over
  double best_val_loss_ = std::numeric_limits<double>::infinity();
  std::filesystem::path last_checkpoint_;
};

}  // namespace ingot
