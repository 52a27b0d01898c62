// Finds where a value that is not finite first appeared, in the order in which a step computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ingot/comm/communicator.h"
#include "ingot/nn/transformer.h"

namespace ingot {

// "embedding", "block 3", "head".
std::string layer_name(const ParamList& list, int unit);

struct NonFinitePlace {
  std::string layer;   // "embedding", "block 3", "head"
  std::string tensor;  // "weight blocks.3.mlp.up.weight", "output of attention", "gradient of ..."
};

struct NonFinite {
  enum class Kind { kLoss, kGradient, kGradientNorm };
  Kind kind = Kind::kLoss;
  // Index of the micro-batch in the step, counted over all ranks (config/data_shard.h); -1 if every
  // micro-batch is finite and only their sum is not.
  int64_t micro = -1;
  NonFinitePlace place;
  std::string text() const;  // "the loss is not finite in micro-batch 1: block 3, output of attention"
};

// Searches in forward order through the units of `saved`, which holds the forward pass that failed: the
// weights of each unit that are on this rank, then the residual stream after each half of the unit, then
// the losses. Returns nullopt if everything is finite. This function and the next two wait for the
// stream.
std::optional<NonFinitePlace> first_non_finite(TrainingStore& params, const Transformer::Saved& saved,
                                               Stream& stream);

// Searches in backward order, from the head to the embedding. Returns nullopt if everything is finite.
std::optional<NonFinitePlace> first_non_finite_gradient(TrainingStore& params, Stream& stream);

// Returns the gradient with the largest value. Used if the norm overflows although every gradient is
// finite.
NonFinitePlace largest_gradient(TrainingStore& params, Stream& stream);

// Returns what the ranks found in the earliest micro-batch. If several ranks found something there, a
// loss is reported by the first rank and a gradient by the last (pipeline stages are in rank order).
// Returns nullopt if no rank found anything. All ranks call this.
std::optional<NonFinite> first_of_ranks(const std::optional<NonFinite>& found, Communicator& all);

}  // namespace ingot
