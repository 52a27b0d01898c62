// StateWatch finds silent corruption: bits of weights, optimizer state or gradients that memory or a
// processor changed, which no check for NaN would see. It compares replicas with each other
// (guard.replica_hash_every), memory with what the last update left there (guard.memory_watch), and a step's
// gradients with those of a second execution (guard.verify_every). All ranks call each function alike and get
// the same answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/config/guard_config.h"
#include "ingot/core/staging.h"
#include "ingot/train/state_hash.h"
#include "ingot/train/trainer.h"

namespace ingot {

class StateWatch {
 public:
  // Borrows all arguments. world: all ranks of the run. REQUIRES: the trainer's state is initialised or
  // restored.
  StateWatch(const GuardConfig& guard, Communicator& world, Trainer& trainer)
      : guard_(guard), world_(world), trainer_(trainer) {
    state_changed();
  }

  // Called before an update, and before a checkpoint: returns what is wrong with the state, or nullopt.
  // Compares replicas if is_saving, and every guard.replica_hash_every steps.
  std::optional<std::string> look(bool is_saving);
  // Called after every update, and after the state was restored.
  void state_changed();

  // True if the gradients of the step after `steps` steps are to be computed twice.
  bool is_verified(int64_t steps) const;
  // Keeps the hashes of the gradients and the loss.
  void keep_gradients(double loss);
  // Returns true if those kept last, on all ranks, are those of now. Otherwise says on which ranks they
  // differ.
  bool has_same_gradients(double loss, std::string& difference);

  // After the run went back because of a difference between replicas, and has made the same steps again:
  // returns which ranks were wrong; empty if there is nothing to say.
  std::string verdict();

 private:
  struct Suspicion {
    int64_t step = 0;
    std::vector<StateHash> hashes;
  };

  bool has_replicas() const { return guard_.replica_hash_every > 0 && replicas().size() > 1; }
  Communicator& replicas() const { return *trainer_.layout().mesh->replicate; }
  // Names the first part that differs; `how` follows it.
  std::string own_difference(const std::vector<StateHash>& before, const std::vector<StateHash>& now,
                             const char* how) const;
  std::string difference_of_replicas(const std::vector<StateHash>& own) const;
  std::string agree_on(const std::string& own);

  const GuardConfig& guard_;
  Communicator& world_;
  Trainer& trainer_;
  Staging staging_;
  std::optional<std::vector<StateHash>> last_;  // of the state after the last update, with guard.memory_watch
  std::vector<StateHash> gradients_;
  double loss_ = 0;
  std::optional<Suspicion> suspicion_;
};

}  // namespace ingot
