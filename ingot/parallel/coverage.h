// A proof, before anything is trained, that the ranks of a layout together have each element of the weights exactly once where it
// must count once, and that ranks whose gradients are summed have the same elements. It asks the stores that a run would have,
// and it costs no memory for weights: `ingot plan` makes it for layouts of up to kMostCoveredRanks ranks.
#pragma once

#include <functional>

#include "ingot/config/config.h"
#include "ingot/nn/param_store.h"

namespace ingot {

inline constexpr int kMostCoveredRanks = 1024;

// A rank of the world has this shard of a parameter, and writes a part of it.
struct HeldShard {
  int rank = 0;
  ParamShard shard = {};
  Range written = {};  // TrainingStore::written
};

// Throws a kInternal error that names the parameter unless
//   - every element of a trained parameter is counted once in the norm of the gradient,
//   - every element is written once to a checkpoint,
//   - the replicas of a rank have its elements, the ranks of a shared kv-head have the same rows of it, and the first and the
//     last stage have the same elements of a tied table.
// change: for tests, may plant a mistake.
void check_coverage(const RunConfig& config, const std::function<void(HeldShard&)>& change = {});

}  // namespace ingot
