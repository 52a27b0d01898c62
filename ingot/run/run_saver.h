// RunSaver saves a run's checkpoints: when one is due, and what happens if it cannot be written. All ranks
// call each function alike.
#pragma once

#include <optional>

#include "ingot/checkpoint/save_schedule.h"
#include "ingot/core/error.h"
#include "ingot/run/run_state.h"

namespace ingot {

class RunSaver {
 public:
  explicit RunSaver(RunState& run);

  // Returns true if a checkpoint is due now. All ranks use rank 0's clock.
  bool is_due();
  // Saves during the run: a failure is a warning, and the save is tried again after a pause.
  void save();
  // Saves at the start and at the end of the run: after a few attempts it throws the cause.
  void save_or_fail();
  // Called after the last save and the evaluation of the saved weights.
  void finish();

  // Called after a step from the saved weights: a finite loss was computed from them.
  void weights_were_used(int64_t first_step);
  // Removes old checkpoints once the newest has been used, by an evaluation of the same weights or by the
  // step after it, because finite weights may still give a loss that is not finite. Failing to remove them
  // does not end the run.
  void prune();

 private:
  std::optional<Error> try_save();
  void require_finite_eval();
  [[noreturn]] void refuse_broken_state(const Error& error);

  RunState& run_;
  SaveSchedule schedule_;
  // State of the newest checkpoint: saved; used (a finite loss was computed from its weights); or pruned
  // (older ones were removed).
  enum class Newest { kSaved, kUsed, kPruned } newest_ = Newest::kPruned;
};

}  // namespace ingot
