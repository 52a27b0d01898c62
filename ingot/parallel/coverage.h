// A proof, before anything is trained, that the ranks of a layout together have each element of the weights
// exactly once where it must count once, and that ranks whose gradients are summed have the same elements. It
// asks the stores that a run would have, and it costs no memory for weights: `ingot plan` makes it for
// layouts of up to kMaxCoveredRanks ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/nn/param_store.h"
#include "ingot/optim/rule.h"

namespace ingot {

inline constexpr int kMaxCoveredRanks = 1024;

// Elements of a shard, counted from its begin, whose gradients are summed over the ranks of a group.
struct SummedElements {
  std::string group;
  Range elements = {};
};

// A rank of the world has this shard of a parameter, sums its gradients, updates it and writes a part of it.
struct HeldShard {
  int rank = 0;
  ParamShard shard = {};
  Range written = {};  // TrainingStore::written
  OptimParam update = {};
  std::vector<SummedElements> sums = {};
};

// Throws a kInternal error that names the parameter unless
//   - every element of a trained parameter is counted once in the norm of the gradient,
//   - every element is written once to a checkpoint,
//   - the replicas of a rank have its elements, the ranks of a shared kv-head have the same rows of it, and
//     the first and the last stage have the same elements of a tied table,
//   - the gradient of every element is summed once over each axis of ranks that compute terms of it, and over
//     no others,
//   - the ranks that update a matrix together have all of it, and a rule that works on whole matrices sees
//     each of them whole.
// change: for tests, may plant a mistake.
void check_coverage(const RunConfig& config, const std::function<void(HeldShard&)>& change = {});

}  // namespace ingot
