// Hashes of what a rank remembers from step to step, by unit of the model: equal on all replicas, and
// unchanged between two updates. A difference is silent corruption: a bit that memory or a processor changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/core/staging.h"
#include "ingot/train/trainer.h"

namespace ingot {

struct StateHash {
  // kOwned: optimizer state that only one of several replicas holds.
  enum class What { kWeights, kCopies, kOptimizer, kOwned, kGradients };
  int unit = 0;
  What what = What::kWeights;
  uint64_t key = 0;  // of the elements that are hashed: equal for ranks that hold the same ones
  uint64_t hash = 0;
  bool operator==(const StateHash&) const = default;

  // "the weights of block 3".
  std::string text(const ParamList& list) const;
};

// The weights, with their tails, the copies in the compute dtype and the optimizer's state, of this rank's
// shards; units without any are left out. On a device the numbers are copied to the host.
std::vector<StateHash> hash_state(Trainer& trainer, Staging& staging);
// The gradients of this rank's shards.
std::vector<StateHash> hash_gradients(Trainer& trainer, Staging& staging);

}  // namespace ingot
