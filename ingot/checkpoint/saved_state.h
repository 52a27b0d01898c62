// SavedState holds the weights and optimizer state that this rank writes to a checkpoint. It reads the
// trainer's own memory, or a copy of it, which can be written while the trainer continues.
//
// Replicas of a shard divide its elements among themselves, so the copies of all ranks together are one copy
// of the model's f32 weights (or of bf16 weights and their tails) and of the optimizer's state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/parallel.h"
#include "ingot/core/staging.h"
#include "ingot/nn/param_store.h"
#include "ingot/train/trainer.h"

namespace ingot {

class SavedState {
 public:
  // Borrows the trainer.
  explicit SavedState(Trainer& trainer);

  // Returns the size of the arena that copy_to needs.
  size_t copy_bytes() const;
  // Copies everything to host memory; values() and state() then read the copy. May run on another thread if
  // the state lies on the host; the trainer must not change it meanwhile. REQUIRES: the arena is empty.
  void copy_to(Arena& room);
  // Throws a kData error if a bit of the copy has changed since it was made. Does nothing without a copy.
  void require_intact_copy() const;

  // Trained parameter `id`: the elements of this rank's shard that this rank writes, and their f32 values
  // (n), valid until the next call.
  Range value_range(int id) const { return weights_.at(id).range; }
  const ParamShard& shard(int id) const { return weights_.at(id).shard; }
  Tensor values(int id);

  // State k of Optimizer::states(): the elements of its tensor that this rank writes, and the elements (n) in
  // the state's dtype, valid until the next call.
  Range state_range(size_t k) const { return states_[k].range; }
  Tensor state(size_t k) { return on_host(states_[k].numbers, staging_); }

  Trainer& trainer() { return trainer_; }

 private:
  struct Weight {
    ParamShard shard;
    Range range;
    Tensor w, tail;  // (n) of the range; f32, or bf16 with or without a tail
  };
  struct State {
    Range range;
    Tensor numbers;  // (n)
  };

  // Calls f for every tensor of the weights and states, some of which are absent.
  template <typename Self, typename F>
  static void for_each_tensor(Self& self, const F& f) {
    for (auto& [id, weight] : self.weights_) {
      f(weight.w);
      f(weight.tail);
    }
    for (auto& state : self.states_) f(state.numbers);
  }
  Tensor on_host(const Tensor& t, Staging& staging);
  uint64_t copy_hash() const;

  Trainer& trainer_;
  std::map<int, Weight> weights_;      // by parameter id
  std::vector<State> states_;          // as Optimizer::states()
  std::optional<uint64_t> copy_hash_;  // the hash that the copy had when it was made
  Staging staging_, tail_staging_;
  std::vector<float> expanded_;  // f32 values of bf16 weights
};

}  // namespace ingot
