// Builder adds operations to a list and checks how their values lie on the ranks. differentiate() then
// appends the backward pass, by the rule of each operation in reverse order.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ingot/nn/program/primitive.h"
#include "ingot/nn/recompute.h"
#include "ingot/nn/tensor_parallel.h"

namespace ingot {

// Consecutive units of a model, such as a pipeline stage. Unit 0 is the embedding, 1 .. layers are the
// blocks, layers + 1 is the head.
struct UnitRange {
  int first = 0, end = 0;
};

// The sequences of a cache of keys and values, and the positions of each; none without a cache.
struct CacheShape {
  int64_t slots = 0, positions = 0;
};

// A list is built for a shape, a device and the ranks.
struct BuildSpec {
  DType compute = DType::f32;
  Device device = Device::kCpu;
  int64_t B = 0, T = 0;  // sequences of a micro-batch, and their tokens
  TensorParallel tp = {};
  bool is_training = true;
  bool has_dropout = false;
  bool has_documents = false;
  bool has_fp8 = false;
  bool joins_products = true;
  CacheShape caches = {};   // a pass of generation has caches; its B is 1, and its T the number of tokens
  RecomputePlan plan = {};  // its blocks begin with first_block
  int first_block = 0;
  const ParamList* params = nullptr;  // the model's; null if it trains all

  int64_t tokens() const { return B * T; }
  // True if parameter `id` is not absent (-1) and not frozen.
  bool trains(int id) const { return id >= 0 && (!params || (*params)[id].is_trained); }
  // True if products on the device take their elementwise neighbours (ops/linear_fused.h).
  bool fuses_products() const { return joins_products && device == Device::kCuda && tp.count == 1; }
  // True if the linears of a half of a block leave their FP8 codes for backward.
  bool keeps_codes(const Scope& scope) const {
    if (scope.block < 0) return true;
    const BlockPlan& block = plan.blocks[static_cast<size_t>(scope.block - first_block)];
    return scope.half == Half::kAttention ? block.attention.has_codes : block.mlp.has_codes;
  }
};

class Builder {
 public:
  explicit Builder(BuildSpec spec) : spec_(std::move(spec)) {}

  const BuildSpec& spec() const { return spec_; }
  const Value& operator[](ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const std::vector<Value>& values() const { return values_; }
  std::vector<Value>& values() { return values_; }
  const std::vector<Op>& ops() const { return ops_; }
  std::vector<Op>& ops() { return ops_; }

  // The operations and values that follow belong to a scope. prefix: of the values' names, such as
  // "blocks.3.mlp.".
  void enter(const Scope& scope, std::string prefix);
  const Scope& scope() const { return scope_; }
  void set_cause(Cause cause) { cause_ = cause; }

  // Adds a value; its scope is the builder's, and its name follows the prefix.
  ValueId value(std::string name, DType dtype, const Shape& shape, Placement placement,
                Role role = Role::kHidden);
  // Adds a value like another, with a name of its own.
  ValueId like(ValueId id, std::string name);
  void set_role(ValueId id, Role role) { values_[static_cast<size_t>(id)].role = role; }
  // Appends an operation; returns it for attributes to be set before the next is added.
  Op& add(std::shared_ptr<const Primitive> primitive, std::vector<ValueId> in, std::vector<ValueId> out);

  // Puts operations before all others.
  void prepend(std::vector<Op> ops);

  // Throws unless the value lies on the ranks in one of two ways. what: the operation and the operand.
  void require(ValueId id, Placement a, Placement b, const char* what) const;

 private:
  BuildSpec spec_;
  std::vector<Value> values_;
  std::vector<Op> ops_;
  Scope scope_;
  std::string prefix_;
  Cause cause_ = Cause::kForward;
};

// The gradients of values while differentiate() walks a list.
class Gradients {
 public:
  ValueId get(ValueId of) const;
  void set(ValueId of, ValueId gradient);

 private:
  std::vector<ValueId> gradient_;  // by value
};

// The rule of one operation sees the gradients of its outputs, and gives those of its inputs.
class BackwardRule {
 public:
  // producers: by value, the operation of the forward pass that writes it; null if none does.
  BackwardRule(Builder& builder, const Op& forward, const std::vector<const Op*>& producers,
               Gradients& gradients)
      : b(builder), op(forward), producers_(producers), gradients_(gradients) {}

  Builder& b;
  const Op& op;

  // Returns the gradient of an output, kNoValue if it has none. If the output is whole, a sum that is still
  // due is made first.
  ValueId d(size_t out);
  // Returns it as it is: possibly the rank's term of a sum.
  ValueId d_or_term(size_t out) const;
  // Returns the gradient that an input has so far, and forgets it: the rule gives back the total.
  ValueId take(size_t in);
  // Adds to the gradient of an input, or of any value.
  void give(size_t in, ValueId gradient) { give_to(op.in[in], gradient); }
  void give_to(ValueId of, ValueId gradient);
  // Returns a new value for the gradient of a value.
  ValueId gradient_like(ValueId of, Placement placement);
  ValueId gradient_like(ValueId of) { return gradient_like(of, b[of].placement); }
  // Returns the operation of the forward pass that writes a value; null if none does.
  const Op* producer(ValueId id) const { return producers_[static_cast<size_t>(id)]; }

 private:
  const std::vector<const Op*>& producers_;
  Gradients& gradients_;
};

// Appends the backward pass of the builder's operations. gradients: those of the results to begin with; after
// the call also those of what the list does not compute.
void differentiate(Builder& builder, Gradients& gradients);

}  // namespace ingot
