// Program: the operations of one micro-batch in order, with an address for every value, and the passes that
// run them.
#pragma once

#include <vector>

#include "ingot/nn/program/passes.h"

namespace ingot {

enum class Section : uint8_t { kForward, kBackward };

class Program {
 public:
  // Lays out the builder's list, whose backward pass begins at operation `border`.
  Program(Builder builder, size_t border, const std::vector<Pinned>& pinned, size_t least_slot_bytes = 0);

  size_t slot_bytes() const { return addresses_.slot_bytes; }
  size_t scratch_bytes() const { return addresses_.scratch_bytes; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Op>& ops() const { return ops_; }
  const Addresses& addresses() const { return addresses_; }

  // Returns a value. REQUIRES: it lies in the slot. slot: slot_bytes() bytes.
  Tensor tensor(ValueId id, const Tensor& slot) const;
  // Runs a section on a slot. The context's scratch has room for scratch_bytes().
  void run(Section section, const Tensor& slot, LayerContext& ctx, const PassArguments& args) const;

  // Runs operations [begin, end).
  void run(size_t begin, size_t end, const Tensor& slot, LayerContext& ctx, const PassArguments& args) const;
  size_t border() const { return border_; }
  // True if a value of the forward pass is still in the slot after it.
  bool is_intact(ValueId id) const;

 private:
  std::vector<Value> values_;
  std::vector<Op> ops_;
  size_t border_;
  Addresses addresses_;
};

}  // namespace ingot
