// Progress records how far a run has come. Only the loop (Session, GuardedStep, RunEvaluator) writes it;
// saver and reporter read it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <vector>

#include "ingot/run/eval/run_eval.h"
#include "ingot/run/record/lowest_loss.h"
#include "ingot/run/run_clock.h"
#include "ingot/run/run_setup.h"

namespace ingot {

// Returns true after every `every` steps; 0 stands for never.
inline bool is_due_after(int64_t steps, int64_t every) { return every > 0 && steps % every == 0; }

struct Progress {
  // Fields of the next checkpoint, as in TrainerState.
  int64_t tokens = 0;
  std::vector<std::array<int64_t, 2>> excluded_samples = {};
  std::optional<uint64_t> base_fingerprint = {};

  RunClock::time_point start = RunClock::now(), training_start = {};
  double spent_before_s = 0;  // time budget spent in earlier parts of the run

  // The last evaluation and sample. A step of -1 stands for none since the state was restored.
  int64_t eval_step = -1, sample_step = -1;
  std::optional<RunEval> eval = {};
  double best_loss = std::numeric_limits<double>::infinity();  // the lowest so far
  LowestLoss lowest = {};
  bool is_eval_missing = false;  // the run was interrupted in the evaluation of the step it resumes at

  double training_s() const { return seconds_since(training_start); }
  // Returns the seconds spent of the time budget; all ranks call it, and use one clock.
  double spent_s(const RunSetup& setup) const {
    if (setup.config.train.max_time_s == 0) return 0;
    return setup.world.max(spent_before_s + training_s());
  }
};

// The checkpoint with the lowest validation loss of those that a run has saved. A step of -1 stands for none.
struct BestCheckpoint {
  int64_t step = -1;
  double val_loss = std::numeric_limits<double>::infinity();
};

// The last checkpoint that was saved or restored, and the best one. A step of -1 stands for none.
struct SavedCheckpoints {
  int64_t step = -1;
  std::filesystem::path path = {};
  BestCheckpoint best = {};
};

}  // namespace ingot
