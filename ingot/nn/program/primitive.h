// A Primitive does one kind of operation. It is an object with the operation's attributes; next to each there
// is a free function that adds the operation to a Builder (primitives/*.h). An operation of a user's own
// derives from Primitive too.
#pragma once

#include <functional>
#include <string>

#include "ingot/core/arena.h"
#include "ingot/nn/infer_batch.h"
#include "ingot/nn/layer.h"
#include "ingot/nn/micro_batch.h"
#include "ingot/nn/program/op.h"
#include "ingot/ops/kv_cache.h"
#include "ingot/ops/linear_cross_entropy.h"

namespace ingot {

class BackwardRule;  // builder.h
class PlacedOp;      // check.h
class Program;       // program.h

// The arguments of one pass, which a list cannot know.
struct PassArguments {
  const MicroBatch* batch = nullptr;  // in generation it has tokens (1, N) alone
  Tensor rope_table = {};             // (positions, D) f32, or empty
  float grad_scale = 0;               // the losses' gradients are multiplied by it
  int64_t checked_tokens = 0;         // losses that are computed once more in f32
  LinearCrossEntropyReport* report = nullptr;
  // Generation has the tokens, the cache of every block of the model, and the rows (N, C) of a learned table
  // of positions that belong to the tokens. Row t of rope_table belongs to token t then.
  const InferBatch* infer = nullptr;
  const std::vector<KvCache>* caches = nullptr;
  Tensor positions = {};
};

// The memory of a program's values during a pass.
struct ProgramMemory {
  const Program& program;
  Tensor slot, scratch;

  Tensor operator[](ValueId id) const;
};

// The tensors of an operation that runs.
struct Operands {
  const Op& op;
  const ProgramMemory& memory;
  LayerContext& ctx;  // its scratch is the operation's own
  const PassArguments& args;

  Tensor in(size_t i) const { return with_amax(at(op.in, i), i == 0 ? op.amax.in : -1); }
  Tensor out(size_t i) const {
    return with_amax(at(op.out, i), static_cast<int>(i) == op.amax.output ? op.amax.out : -1);
  }
  Tensor weight(size_t i) const { return ctx.params.weight(parameter(op.weights, i)); }
  // The gradient of a parameter to which the operation adds; empty if it has none.
  Tensor gradient(size_t i) const { return ctx.params.grad(parameter(op.gradients, i)); }
  // The same for an operation that may write over it.
  WeightGradient weight_gradient(size_t i) const {
    return ingot::weight_gradient(ctx, parameter(op.gradients, i));
  }

 private:
  Tensor with_amax(const Tensor& t, int tensor) const {
    return tensor < 0 ? t : t.with_amax(ctx.fp8->next_amax(tensor));
  }
  Tensor at(const std::vector<ValueId>& ids, size_t i) const {
    return i < ids.size() ? memory[ids[i]] : Tensor{};
  }
  static int parameter(const std::vector<int>& ids, size_t i) { return i < ids.size() ? ids[i] : -1; }
};

// An operation with the shapes of its values, as the passes see it.
struct DescribedOp {
  const Op& op;
  const std::vector<Value>& values;

  const Value& in(size_t i) const { return values[static_cast<size_t>(op.in[i])]; }
  const Value& out(size_t i) const { return values[static_cast<size_t>(op.out[i])]; }
};

using KnownValues = std::function<bool(ValueId)>;

class Primitive {
 public:
  Primitive() = default;
  Primitive(const Primitive&) = delete;
  Primitive& operator=(const Primitive&) = delete;
  virtual ~Primitive() = default;

  virtual std::string name() const = 0;
  virtual void run(const Operands& t) const = 0;
  // Measures the scratch that run allocates.
  virtual void scratch([[maybe_unused]] const DescribedOp& op, [[maybe_unused]] Arena& arena) const {}
  // Adds the operations that turn the gradients of the outputs into those of the inputs.
  virtual void backward([[maybe_unused]] BackwardRule& rule) const {}
  // Returns the least operation that writes the outputs which are not known, when the others are. It is for
  // recomputation.
  virtual Op again(const Op& op, [[maybe_unused]] const KnownValues& is_known) const { return op; }
  // Refuses operands that do not lie on the ranks as the operation needs them (check.h). By default all lie
  // alike, and none is a term of a sum: every element of the outputs follows from the same element, or row,
  // of the inputs.
  virtual void check(const PlacedOp& op) const;
  // True if the operation can raise the amax of an output for an FP8 cast while it writes it.
  virtual bool raises_amax([[maybe_unused]] size_t out) const { return false; }
};

}  // namespace ingot
