// RunSaver saves a run's checkpoints. It decides when one is due, and handles one that cannot be written. All
// ranks call each function together, except where its comment says otherwise.
//
// During a run a checkpoint is written concurrently with the steps (checkpoint.async): save() begins it, and
// go_on() is called between steps until it is committed. At most one is written at a time.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ingot/checkpoint/checkpoint_writer.h"
#include "ingot/checkpoint/save_schedule.h"
#include "ingot/core/arena.h"
#include "ingot/core/error.h"
#include "ingot/core/process/background_task.h"
#include "ingot/run/run_services.h"

namespace ingot {

// Returns the configuration as it is stored in a checkpoint. It leaves out where this part of the run stops
// and what it runs on, because those are not properties of the model.
std::string checkpoint_config(RunConfig config);

class RunSaver {
 public:
  // Borrows all arguments except `saved`.
  RunSaver(const RunSetup& setup, RunServices& services, const Progress& progress, SavedCheckpoints saved);

  const SavedCheckpoints& saved() const { return saved_; }
  // Called after the run has gone back to a checkpoint.
  void restored(SavedCheckpoints saved) { saved_ = std::move(saved); }

  // Returns true if a checkpoint is due now. All ranks use rank 0's clock.
  bool is_due();
  // Saves during the run: a failure is a warning, and the save is tried again after a pause.
  void save();
  // Saves at the start and at the end of the run, and waits for it: after a few attempts it throws the cause.
  void save_or_fail();
  // Called after the last save and the evaluation of the saved weights.
  void finish();

  // Returns true while this rank still writes. Each rank calls it for itself.
  bool is_busy() const { return writer_.is_active() && !writer_.is_ready(); }
  // Called between steps. is_any_busy: true if is_busy() was true on some rank.
  void go_on(bool is_any_busy);
  // Waits until the checkpoint that is being written is committed or has failed, which is a warning. Returns
  // false if it failed.
  bool settle();
  // Called before the state is changed by something else than a step's passes.
  void wait_until_copied();
  // Returns true if the state of now is being written.
  bool is_writing_this_step() const { return writer_.is_active() && pending_.step == services_.steps_done(); }
  // Called when the state was found to be corrupt: gives up the checkpoint of it.
  void state_is_corrupt();
  // Returns how long the training thread has waited for checkpoints since the last call, in seconds.
  double take_stall_s();

  // Called after every evaluation: if the loss is the lowest so far, the checkpoint of this step becomes the
  // best one, as soon as it is committed.
  void evaluated(double val_loss);
  // Returns true if this step's weights are better than the best checkpoint and are not saved yet.
  bool is_best_due() const;

  // Called after a step from the saved weights: a finite loss was computed from them.
  void weights_were_used(int64_t first_step);
  // Removes old checkpoints once the newest has been used, by an evaluation of the same weights or by the
  // step after it, because finite weights may still give a loss that is not finite. Failing to remove them
  // does not end the run.
  void prune();

 private:
  // The checkpoint that is being written.
  struct Pending {
    int64_t step = -1;
    RunClock::time_point begin = {};
  };

  std::optional<Error> begin(Arena* room);
  std::optional<Error> finish_pending();
  template <typename Work>
  std::optional<Error> attempt(const Work& work);
  void committed(const std::filesystem::path& path);
  void save_failed(const Error& error);
  std::optional<Error> save_now();
  void finish_prune();
  void name_best();
  void require_finite_eval();
  [[noreturn]] void refuse_broken_state(int64_t step, const Error& error);

  const RunSetup& setup_;
  RunServices& services_;
  const Progress& progress_;
  SavedCheckpoints saved_;
  SaveSchedule schedule_;
  // State of the newest checkpoint: saved; used (a finite loss was computed from its weights); or pruned
  // (older ones were removed).
  enum class Newest { kSaved, kUsed, kPruned } newest_ = Newest::kPruned;
  std::optional<Arena> room_;  // for the copy of the state; nullopt if training waits for every save
  Pending pending_;
  BestCheckpoint best_due_;  // becomes the best checkpoint when it is committed; step -1 if none is due
  double stall_s_ = 0;
  std::vector<std::string> prune_warnings_;
  CheckpointWriter writer_;
  BackgroundTask pruner_;  // rank 0 only
};

}  // namespace ingot
