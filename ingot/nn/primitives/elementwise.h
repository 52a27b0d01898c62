// Operations on elements: sums, dropout, the activations of the feed-forward half.
#pragma once

#include "ingot/nn/program/builder.h"
#include "ingot/ops/activation.h"

namespace ingot {

// Returns x + y, of the residual stream.
ValueId add(Builder& b, ValueId x, ValueId y);
// True for an operation that add() added.
bool is_add(const Op& op);
// Returns the sum of two gradients of one value; it may take the memory of the first.
ValueId add_gradients(Builder& b, ValueId first, ValueId second);
// y = dropout(x), by the random numbers of a site of the model; x itself if the list has no dropout.
ValueId dropout(Builder& b, ValueId x, uint32_t site);
// Returns f(pre + bias). bias: -1 for none.
ValueId activate(Builder& b, ValueId pre, Activation kind, int bias);
// Returns silu(gate) * up of gate_up (N, 2F).
ValueId swiglu(Builder& b, ValueId gate_up);
// Returns the operation that computes act = gelu(pre), where `like` is in the list.
Op gelu_of(ValueId act, ValueId pre, const Op& like);
// The bias of an activation that a product may compute, a GELU by its tanh formula; -1: none, or another
// operation.
int fusible_gelu_bias(const Op& op);

}  // namespace ingot
