// RunState holds what the parts of a session share during a run. Its constructor starts a new run or resumes
// one from its newest healthy checkpoint.
//
// Each rank has its own RunState, and all ranks make the same calls. They first agree on whatever only one of
// them can know (a signal, the clock, the newest good checkpoint).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/comm/mesh.h"
#include "ingot/config/run_plan.h"
#include "ingot/console/console.h"
#include "ingot/core/time_limit.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/record/run_log.h"
#include "ingot/run/resume_check.h"
#include "ingot/run/run_data.h"
#include "ingot/train/guard.h"
#include "ingot/train/trainer.h"

namespace ingot {

// The checkpoint with the lowest validation loss of those that a run has saved. A step of -1 stands for none.
struct BestCheckpoint {
  int64_t step = -1;
  double val_loss = std::numeric_limits<double>::infinity();
};

// InterruptedStart is thrown by the constructor of RunState, on all ranks, if one of them is asked to end
// while its text is read.
struct InterruptedStart {};

struct RunState {
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  // Borrows everything except the configurations. Throws a kUsage error if there is no checkpoint to resume,
  // or if it does not fit the configuration.
  RunState(const RunConfig& given, RunFolder& folder, bool is_resume, Console& console,
           const std::atomic<bool>& is_interrupted, Mesh& mesh, OtherText other_text);

  bool is_lead() const { return world.rank() == 0; }
  int64_t steps_done() const { return trainer.state().steps_done; }
  RunPosition position() const;
  bool is_finished() const { return plan.is_finished(position()); }
  bool is_due(int64_t every) const { return every > 0 && steps_done() % every == 0; }
  // Passes the phase that the ranks begin now to the time limit, and writes a heartbeat with it. work: as in
  // TimeLimit::begin.
  void begin_phase(TimeLimit::Phase phase, int64_t work = 1);
  // Writes a heartbeat if the last one is old enough.
  void beat();
  // Returns the newest checkpoint that rank 0 finds healthy, before the given step; only rank 0 reads every
  // byte. Damaged ones are reported.
  std::optional<Checkpoint> newest_healthy(int64_t before_step = std::numeric_limits<int64_t>::max());
  // Restores everything except the clock to the state of the checkpoint. Returns the hashes of its text.
  TextHashes restore(const Checkpoint& checkpoint);
  // Writes a line of metrics.jsonl about the batch at position `at`.
  void log_event(const std::string& event, const std::string& reason, int64_t step, const RunPosition& at);

  RunFolder& folder;
  Console& console;
  const std::atomic<bool>& is_interrupted;
  Communicator& world;  // all ranks of the run
  TimeLimit& time_limit;
  CheckpointStore store;
  std::optional<Checkpoint> resumed;
  std::optional<ResumeCheck> changes;  // changed keys of a resumed run
  RunData data;
  RunConfig config;
  Trainer trainer;
  Sampler sampler;
  Loader loader;
  RunPlan plan;
  Guard guard;
  RunLog log;
  TrainerState saved;  // what the next checkpoint holds in addition to weights and optimizer

  struct Times {
    Clock::time_point start = Clock::now();
    Clock::time_point training_start = {};
    double spent_before_s = 0;  // time budget spent in earlier parts of the run
  } times;

  // The last evaluation, save and sample. A step of -1 stands for none.
  struct Last {
    int64_t eval_step = -1, save_step = -1, sample_step = -1;
    std::optional<EvalResult> eval;
    std::vector<std::pair<std::string, double>> mix_losses;  // those of the last evaluation, by source
    double best_val_loss = std::numeric_limits<double>::infinity();
    std::filesystem::path checkpoint;
    BestCheckpoint best;
    bool is_eval_missing = false;  // the run was interrupted in the evaluation of the step that it resumes
  } last;

 private:
  std::optional<Checkpoint> find_resume_point(bool is_resume);
  std::optional<ResumeCheck> check_changes(const RunConfig& given, OtherText other_text) const;
  std::optional<std::string> resumed_tokenizer() const;
  RunData load_data(const DataConfig& given) const;
  RunConfig with_vocab(const RunConfig& given) const;
  TextHashes text() const;
  void complete_side_files();
  void check_data_of_ranks();
  void start();
  DamageReport damage_report() const;
  void find_best(const std::map<int64_t, double>& val_losses);
  void resume();
  double spent_s() const;
};

// Begins a phase other than a step, and reports at its end how long it took.
class TimedPhase {
 public:
  TimedPhase(RunState& run, TimeLimit::Phase phase) : limit_(run.time_limit) { run.begin_phase(phase); }
  ~TimedPhase() { limit_.end(RunState::seconds_since(start_)); }
  TimedPhase(const TimedPhase&) = delete;
  TimedPhase& operator=(const TimedPhase&) = delete;

 private:
  TimeLimit& limit_;
  RunState::Clock::time_point start_ = RunState::Clock::now();
};

}  // namespace ingot
