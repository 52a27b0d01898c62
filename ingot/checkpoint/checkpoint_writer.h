// CheckpointWriter saves a checkpoint while training continues.
//
//   begin()     rank 0 makes the folder; every rank copies its part of the state and starts to write it
//   advance()   once every rank has written: rank 0 checks the files and commits the checkpoint
//   advance()   once that is done: returns the path of the checkpoint
//
// A background thread of each rank copies, writes and commits. Ranks communicate only in begin() and
// advance(), which all of them call together on the thread that trains. Without a copy (begin's `room` is
// null), begin() and advance() do all the work themselves and write the trainer's own memory.
//
// If a rank dies before the commit, nothing is committed and older checkpoints stay. If a rank fails, begin()
// or advance() throws its error on all ranks, nothing is left of the checkpoint, and the caller may begin
// again.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/checkpoint/fp8_history.h"
#include "ingot/checkpoint/rank_tensors.h"
#include "ingot/checkpoint/saved_state.h"
#include "ingot/core/arena.h"
#include "ingot/core/process/background_task.h"
#include "ingot/train/trainer.h"

namespace ingot {

class CheckpointWriter {
 public:
  // Borrows both. store: null on ranks other than 0; while a checkpoint is being written, only the writer
  // uses it.
  CheckpointWriter(CheckpointStore* store, Trainer& trainer) : store_(store), trainer_(trainer) {}
  ~CheckpointWriter();  // waits for this rank's work; an uncommitted checkpoint is removed

  // Returns the size of the arena for a copy of what this rank writes.
  static size_t copy_bytes(Trainer& trainer) { return SavedState(trainer).copy_bytes(); }

  // Starts to write a checkpoint. Rank 0 writes the tokenizer, config_text (config.toml) and the state
  // (trainer.json); the other ranks' arguments are ignored. All ranks pass room for a copy, or all pass null.
  // Throws kDisk if the file system refuses an operation, and kNumerics if a number in `state` is not finite.
  // REQUIRES: no checkpoint is being written.
  void begin(const Tokenizer& tokenizer, const std::string& config_text, const TrainerState& state,
             Arena* room);
  bool is_active() const { return phase_ != Phase::kIdle; }

  // Blocks until the state is copied, so that the trainer may change it. Returns at once without a copy.
  void wait_until_copied() const { is_copied_.wait(false); }
  // Returns true if this rank's work has ended, so that advance() need not wait for it.
  bool is_ready() const { return task_.is_done(); }
  // Waits for the work of all ranks and starts the next phase. Returns the checkpoint's path on every rank
  // once it is committed. Errors: those of begin(), and kNumerics, naming tensor and element, if a number is
  // not finite.
  std::optional<std::filesystem::path> advance();
  std::filesystem::path finish();  // calls advance() until the checkpoint is committed
  // Gives the checkpoint up: waits for this rank's work and removes what it has written. All ranks call it.
  void abandon() noexcept;

 private:
  enum class Phase { kIdle, kWriting, kCommitting };

  void start(std::function<void()> work);
  void write(Arena* room);
  void commit();

  CheckpointStore* store_;
  Trainer& trainer_;
  Phase phase_ = Phase::kIdle;
  bool is_in_background_ = false;
  std::filesystem::path folder_, path_;             // while it is written; once it is committed (rank 0)
  std::map<std::string, std::string> small_files_;  // contents by name (rank 0)
  Fp8History fp8_history_;                          // empty on other ranks than 0
  int64_t tokens_ = 0;
  std::optional<SavedState> saved_;
  std::optional<RankTensorFiles> rank_files_;  // nullopt on a single rank
  std::map<std::string, uint64_t> hashes_;     // hashes of the two large files (rank 0)
  std::atomic<bool> is_copied_ = true;
  BackgroundTask task_;  // last, because its work uses the other members
};

}  // namespace ingot
