// OpGraph describes operations on four-dimensional tensors as plain data, for libraries that compile such a
// graph into one kernel (cuDNN). It depends on no library: tests/reference/op_graph.h evaluates one in fp64.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ingot/core/dtype.h"

namespace ingot {

using Extent4 = std::array<int64_t, 4>;

// Returns the strides of a row-major tensor.
constexpr Extent4 row_major(const Extent4& shape) {
  return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

struct OpGraph {
  using Value = int;  // index of a tensor
  static constexpr Value kNone = -1;

  // kMemory: memory that the caller supplies to each run. kPassing: an intermediate that is never stored
  // in memory. kConstant: a number.
  enum class Place { kMemory, kPassing, kConstant };
  struct Tensor {
    Place place;
    DType dtype;  // u8 means bool
    Extent4 shape, strides;
    float constant = 0;
    // If not kNone, the tensor is ragged: its dim 0 are sequences of different lengths, and element (s, ...)
    // lies offset_factor * offsets[s] elements after where strides of 0 along dim 0 would put it. offsets is
    // (S + 1, 1, 1, 1) i32.
    Value offsets = kNone;
    int64_t offset_factor = 1;
  };

  enum class Op {
    kMultiply,
    kAdd,
    kSubtract,
    kDivide,
    kExp,
    kLog,
    kCopy,           // converts to out's dtype
    kIsAtLeast,      // in[0] >= in[1]
    kIsAbove,        // in[0] > in[1]
    kIsBelow,        // in[0] < in[1]
    kAnd,            // in[0] and in[1], of bools
    kSelect,         // in[2] ? in[0] : in[1]
    kIndex,          // index of each element of in[0] along `axis`
    kSum,            // sum over the dims in which out is shorter (length 1, or one per group of heads)
    kMax,            // maximum, likewise
    kMatrixProduct,  // in[0] (B,H,M,N) times in[1] (B,K,N,P): H / K heads of in[0] use one of in[1]
    kReshape,        // the same elements with out's shape and strides
  };
  // The lengths of the sequences of a ragged product: (S, 1, 1, 1) i32 each, or kNone. What lies beyond them
  // is neither read nor written: M are the rows of in[0], N the columns of in[1], and K is the dim that is
  // summed.
  struct Lengths {
    Value m = kNone, n = kNone, k = kNone;
  };
  struct Operation {
    Op op;
    std::array<Value, 3> in;
    Value out;
    int axis = 0;
    Lengths lengths = {};
  };

  std::vector<Tensor> tensors;
  std::vector<Operation> operations;

  const Tensor& at(Value v) const { return tensors[static_cast<size_t>(v)]; }

  Value memory(DType dtype, const Extent4& shape, const Extent4& strides) {
    return append({Place::kMemory, dtype, shape, strides});
  }
  // Memory of sequences, which begin at the offsets.
  Value ragged(DType dtype, const Extent4& shape, const Extent4& strides, Value offsets, int64_t factor = 1) {
    return append({.place = Place::kMemory,
                   .dtype = dtype,
                   .shape = shape,
                   .strides = strides,
                   .offsets = offsets,
                   .offset_factor = factor});
  }
  Value passing(DType dtype, const Extent4& shape) {
    return append({Place::kPassing, dtype, shape, row_major(shape)});
  }
  Value passing(DType dtype, const Extent4& shape, const Extent4& strides) {
    return append({Place::kPassing, dtype, shape, strides});
  }
  Value constant(float value, DType dtype = DType::f32) {
    return append({Place::kConstant, dtype, {1, 1, 1, 1}, {1, 1, 1, 1}, value});
  }

  void into(Value out, Op op, std::array<Value, 3> in) { operations.push_back({op, in, out}); }
  // out = a b.
  void product_into(Value out, Value a, Value b, const Lengths& lengths) {
    operations.push_back({.op = Op::kMatrixProduct, .in = {a, b, kNone}, .out = out, .lengths = lengths});
  }
  // Appends an elementwise operation on f32 with a's shape. An operand of length 1 in a dim is broadcast.
  Value apply(Op op, Value a, Value b = kNone) {
    const Value out = passing(DType::f32, at(a).shape);
    into(out, op, {a, b, kNone});
    return out;
  }
  Value select(Value condition, Value yes, Value no) {
    const Value out = passing(DType::f32, at(yes).shape);
    into(out, Op::kSelect, {yes, no, condition});
    return out;
  }
  Value index(Value like, int axis) {
    const Value out = passing(DType::i32, at(like).shape);
    operations.push_back({Op::kIndex, {like, kNone, kNone}, out, axis});
    return out;
  }
  // Appends kIsAtLeast, kIsAbove, kIsBelow or kAnd.
  Value test(Op op, Value a, Value b) {
    const Value out = passing(DType::u8, at(a).shape);
    into(out, op, {a, b, kNone});
    return out;
  }
  Value over_last(Op op, Value a) {
    const Extent4& s = at(a).shape;
    const Value out = passing(DType::f32, {s[0], s[1], s[2], 1});
    into(out, op, {a, kNone, kNone});
    return out;
  }
  Value product(DType dtype, Value a, Value b, const Lengths& lengths) {
    const Extent4 &left = at(a).shape, &right = at(b).shape;
    const Value out = passing(dtype, {left[0], left[1], left[2], right[3]});
    product_into(out, a, b, lengths);
    return out;
  }
  // Returns a with its last two dims exchanged.
  Value transposed(DType dtype, Value a) {
    const Extent4 &s = at(a).shape, &strides = at(a).strides;
    const Value out =
        passing(dtype, {s[0], s[1], s[3], s[2]}, {strides[0], strides[1], strides[3], strides[2]});
    tensors.back().offsets = at(a).offsets;
    into(out, Op::kReshape, {a, kNone, kNone});
    return out;
  }

 private:
  Value append(const Tensor& tensor) {
    tensors.push_back(tensor);
    return static_cast<Value>(tensors.size()) - 1;
  }
};

}  // namespace ingot
