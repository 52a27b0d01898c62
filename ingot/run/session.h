// Session runs one part of a run, from its start or a checkpoint to its end or the point where it is
// stopped: the loop around the trainer's steps, and all output. For run_training (run/run.h) only.
//
// With several ranks each has its own session, and all make the same steps: they first agree on whatever
// only one of them can know (a signal, the clock, the newest good checkpoint). All ranks write a checkpoint
// together; rank 0 writes samples and report.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/checkpoint/save_schedule.h"
#include "ingot/config/run_plan.h"
#include "ingot/console/console.h"
#include "ingot/console/eta.h"
#include "ingot/core/error.h"
#include "ingot/run/mfu.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/record/run_log.h"
#include "ingot/run/resume_check.h"
#include "ingot/run/run.h"
#include "ingot/run/run_data.h"
#include "ingot/train/guard.h"

namespace ingot {

class Session {
 public:
  Session(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
          const std::atomic<bool>& is_interrupted, std::unique_ptr<TrainerParts> parts, OtherText other_text);

  TrainOutcome run();
  int64_t steps_done() const { return trainer_.steps_done(); }
  // Records in run.json that the run ended in an error, and writes report.html as far as the run came.
  void record_failure(const std::string& error, int exit_code) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  // Reports a phase other than a step, and how long it took, to the time limit.
  class TimedPhase {
   public:
    TimedPhase(TimeLimit& limit, TimeLimit::Phase phase) : limit_(limit) { limit_.begin(phase); }
    ~TimedPhase() { limit_.end(seconds_since(start_)); }
    TimedPhase(const TimedPhase&) = delete;
    TimedPhase& operator=(const TimedPhase&) = delete;

   private:
    TimeLimit& limit_;
    Clock::time_point start_ = Clock::now();
  };

  bool is_lead() const { return all_.rank() == 0; }
  bool is_asked_to_stop();
  double spent_s() const;
  void check_data_of_ranks();
  std::optional<Checkpoint> newest_healthy(int64_t before_step = std::numeric_limits<int64_t>::max());
  std::optional<Checkpoint> find_resume_point(bool is_resume);
  std::optional<ResumeCheck> check_changes(const RunConfig& config, OtherText other_text) const;
  std::optional<std::string> resumed_tokenizer() const;
  std::optional<int64_t> first_step_again() const;
  void resume();
  TextHashes restore(const Checkpoint& checkpoint);
  void say_hello();
  RunPosition position() const;
  bool is_finished() const { return plan_.is_finished(position()); }
  bool is_due(int64_t every) const { return every > 0 && trainer_.steps_done() % every == 0; }
  // The data of a step's log line.
  struct StepLine {
    RunPosition at, after;  // positions before and after the step
    Clock::time_point begin;
    std::vector<MetricsField> phases = {};
  };
  std::optional<TrainOutcome::Status> reason_to_end();
  bool step();
  void begin_step_limit(int64_t micro_batches);
  // Submits an asynchronous step (Trainer::submit). Returns false if a submitted step was not finite; the
  // run is then back before that step.
  bool submit_step(StepLine line, const StepInputs& inputs);
  bool collect();
  bool drain();
  void end_line(StepLine& line);
  void pass_excluded_samples();
  void reject(const Verdict& verdict, const RunPosition& at);
  void roll_back(const Verdict& verdict, const RunPosition& at);
  void log_event(const std::string& event, const std::string& reason, int64_t step, const RunPosition& at);
  std::optional<double> seconds_left(const RunPosition& position) const;
  void report_step(const StepResult& result, const StepLine& line);
  void report_bubble();
  int64_t eval_tokens() const;
  bool evaluate();
  void sample();
  static SaveSchedule save_schedule(const RunConfig& config);
  bool is_save_due();
  void save();
  void save_at_end();
  void finish_save();
  std::optional<Error> try_save();
  [[noreturn]] void refuse_broken_state(const Error& error);
  void require_finite_eval();
  void prune();
  void write_aside(const std::function<void()>& write);
  void write_summary(const std::string& status, const std::string& error = "", int exit_code = 0);

  RunFolder& folder_;
  Console& console_;
  const std::atomic<bool>& is_interrupted_;
  Reducer& all_;
  TimeLimit& time_limit_;
  Clock::time_point start_ = Clock::now();
  CheckpointStore store_;
  std::optional<Checkpoint> resumed_;
  std::optional<ResumeCheck> changes_;  // changed keys of a resumed run
  RunData data_;
  TextHashes text_;
  RunConfig config_;
  Trainer trainer_;
  Sampler sampler_;
  Loader loader_;
  RunPlan plan_;
  Guard guard_;
  SaveSchedule saves_;
  RunLog log_;
  MfuMeter mfu_;
  TrainerState state_;
  Clock::time_point training_start_;
  Clock::time_point last_report_;     // time of the last reported step
  std::vector<StepLine> submitted_;   // lines of the steps in flight
  bool is_next_judged_here_ = false;  // true for one step after the device found one that was not finite
  Eta eta_;
  double spent_before_s_ = 0;  // time budget spent in earlier parts of the run
  double train_s_ = 0;         // seconds spent in steps
  double last_step_s_ = std::numeric_limits<double>::infinity();
  bool is_step_long_ = true;  // true if the last step of some rank was long, and before the first step
  double stages_wait_s_ = 0, stages_s_ = 0;  // pipeline: seconds waiting for messages, and in total
  std::optional<EvalResult> last_eval_;
  // State of the newest checkpoint: saved; used (a finite loss was computed from its weights); or pruned
  // (older ones were removed).
  enum class Newest { kSaved, kUsed, kPruned } newest_ = Newest::kPruned;
  int64_t last_eval_step_ = -1, last_save_step_ = -1, last_sample_step_ = -1;
  int64_t non_finite_gradients_ = 0;  // skipped by the optimizer
  bool is_eval_missing_ = false;  // the run was interrupted during the evaluation of the step that it resumes
  double best_val_loss_ = std::numeric_limits<double>::infinity();
  std::filesystem::path last_checkpoint_;
};

}  // namespace ingot
