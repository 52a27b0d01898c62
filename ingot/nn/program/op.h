// The operations of a model: a list in which every value has a name, a shape and a placement, and every
// operation names the values that it reads and writes. Builder (builder.h) makes the list, passes (passes.h)
// derive one list from another, and Program (program.h) runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ingot/core/tensor.h"

namespace ingot {

class Primitive;  // primitive.h

using ValueId = int;
inline constexpr ValueId kNoValue = -1;  // an absent operand

// A value's placement on the tensor-parallel ranks. (Along the data-parallel ranks every activation is split
// by tokens.) With one rank every value is whole.
enum class Placement : uint8_t {
  kWhole,    // every rank has all of it
  kTokens,   // every rank has its own rows: sequence parallelism
  kColumns,  // every rank has its own heads, or its part of the feed-forward width
  kPartial,  // every rank has a term of a sum that is still due
};

// Returns words such as "split by tokens".
const char* text_of(Placement placement);

// A value's role in the model decides whether it is kept for backward (recompute.cpp).
enum class Role : uint8_t {
  kHidden,      // a result within a half of a block
  kStream,      // the residual stream
  kNormalised,  // the output of a norm
  kActivated,   // the output of an activation
  kStatistic,   // a norm's statistics of rows
  kAllRows,     // the rows of all ranks, gathered
  kNormInput,   // the input of a norm after a half of a block
  kResult,      // read after the pass
};

// Half of a block, or what lies outside blocks.
enum class Half : uint8_t { kNone, kAttention, kMlp };

// The part of the model to which an operation or a value belongs.
struct Scope {
  int unit = 0;
  int block = -1;  // index in the model; -1: outside blocks
  Half half = Half::kNone;
  bool operator==(const Scope&) const = default;
};

struct Value {
  std::string name;  // "blocks.3.mlp.act"
  DType dtype = DType::f32;
  Shape shape;
  Placement placement = Placement::kWhole;
  Role role = Role::kHidden;
  Scope scope = {};
};

// Cause says why an operation is in the list. kRecompute: it belongs to a segment of blocks that is made
// again as a whole; kAgain: it makes a value again just before backward reads it.
enum class Cause : uint8_t { kForward, kBackward, kRecompute, kAgain };

// An operation may, or must, write an output over the memory of an input.
struct InPlace {
  int out, in;
  bool is_must;
};

struct Op {
  std::shared_ptr<const Primitive> primitive;
  std::vector<ValueId> in, out;
  std::vector<int> weights = {};    // parameters that it reads
  std::vector<int> gradients = {};  // parameters whose gradients it writes or adds to
  std::vector<InPlace> in_place = {};
  // The FP8 tensor (Fp8State) whose amax rides on an operand, because the operation raises it or casts the
  // operand; -1: none.
  struct {
    int in = -1;                // on in[0]
    int out = -1, output = -1;  // on out[output]
  } amax = {};
  Scope scope = {};
  Cause cause = Cause::kForward;
  int block = -1;  // block during whose part of the pass it runs; -1: none
};

}  // namespace ingot
