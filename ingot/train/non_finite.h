// Where a value that is not finite came from: the first one in the order in which a step computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ingot/nn/transformer.h"
#include "ingot/train/reduce.h"

namespace ingot {

struct NonFinitePlace {
  std::string layer;   // "embedding", "block 3", "head"
  std::string tensor;  // "weight blocks.3.mlp.up.weight", "output of attention", "gradient of ..."
};

struct NonFinite {
  enum class Kind { kLoss, kGradient, kGradientNorm };
  Kind kind = Kind::kLoss;
  // Micro-batch of the step, counting all ranks' (config/data_shard.h); -1: each alone is finite, their sum is
  // not.
  int64_t micro = -1;
  NonFinitePlace place;
  std::string text() const;  // "loss not finite in micro-batch 1: block 3, output of attention"
};

// In the order of forward, of the units that `saved` is of: the weights of a unit that are kept on this rank,
// then the residual stream behind each half of it, then the losses. saved: of the forward that went wrong.
// nullopt if all is finite. All of these wait for the stream.
std::optional<NonFinitePlace> first_non_finite(TrainingStore& params, const Transformer::Saved& saved,
                                               Stream& stream);

// In the order of backward: from the head down to the embedding. nullopt if all is finite.
std::optional<NonFinitePlace> first_non_finite_gradient(TrainingStore& params, Stream& stream);

// The gradient with the largest value: for a norm that overflows though no gradient does.
NonFinitePlace largest_gradient(TrainingStore& params, Stream& stream);

// What the ranks have found, of the earliest micro-batch; of that, what the first rank has found of a loss,
// the last of a gradient (stages of a model lie in order of the ranks). nullopt if nobody has found anything.
// Called by all ranks.
std::optional<NonFinite> first_of_ranks(const std::optional<NonFinite>& found, Reducer& all);

}  // namespace ingot
