// The passes that derive a program from the operations of a forward pass, in this order: fuse, differentiate
// (builder.h), drop_unused_gradients, recompute, call_store, observe_amaxes, assign_addresses.
#pragma once

#include <cstddef>
#include <vector>

#include "ingot/nn/program/builder.h"

namespace ingot {

// Joins neighbours of a forward pass: an addition and the norm of the sum everywhere, and on a device that
// has such products (BuildSpec::fuses_products) a product and its bias, its GELU, or the addition of the
// residual stream. The table is part of the numerics: a joined operation rounds once. adds_in_products: false
// for generation, whose products read weights only.
void fuse(Builder& builder, bool adds_in_products);

// Removes from the backward pass, which begins at operation `border`, the gradients of frozen parameters and
// all operations of which then neither a parameter's gradient nor `result` depends. The caller reads the
// gradient `result` (or kNoValue).
void drop_unused_gradients(Builder& builder, size_t border, ValueId result);

// Inserts into the backward pass, which begins at operation `border`, the operations that make again what the
// plan does not keep.
void recompute(Builder& builder, size_t border);

// Inserts the calls of the store of parameters (nn/param_store.h): when the weights of a unit are prefetched,
// its gradients opened, and their reduction started. Sets Op::block. Returns where the backward pass begins
// then. params: of the model.
size_t call_store(Builder& builder, size_t border, const ParamList& params, UnitRange units);

// Sets Op::amax: the operation that raises the amax of each FP8 cast.
void observe_amaxes(Builder& builder);

// A list with an address for every value. The slot of a micro-batch holds the values that backward reads and
// those that are pinned. Other values lie in the slot where it has room at their time, or else in scratch.
struct Addresses {
  struct Place {
    bool is_in_slot = false;
    size_t offset = 0;
    size_t end = 0;  // the operation from which on the memory may be another's
  };
  std::vector<Place> values;   // by value
  std::vector<Place> scratch;  // by operation: its own scratch
  std::vector<size_t> scratch_sizes;
  size_t slot_bytes = 0, scratch_bytes = 0;
};
// A value that the caller reads or writes: from before operation `begin` to the end of operation `end` - 1.
struct Pinned {
  ValueId value;
  size_t begin, end;
};
// border: where the backward pass begins. least_slot_bytes: the slots have at least this size anyway.
Addresses assign_addresses(const Builder& builder, size_t border, const std::vector<Pinned>& pinned,
                           size_t least_slot_bytes = 0);
// Returns the bytes of a slot that assign_addresses lays out, without the rest of its work.
size_t kept_bytes(const Builder& builder, size_t border, const std::vector<Pinned>& pinned);

}  // namespace ingot
