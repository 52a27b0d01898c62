// OpGraph: operations on tensors of four dims as plain data, for libraries that make one kernel of such a
// graph (cuDNN). It knows no library: tests/reference/op_graph.h computes one in fp64.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ingot/core/dtype.h"

namespace ingot {

using Extent4 = std::array<int64_t, 4>;

// The strides of a row-major tensor.
constexpr Extent4 row_major(const Extent4& shape) {
  return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

struct OpGraph {
  using Value = int;  // a tensor, by its index
  static constexpr Value kNone = -1;

  // Memory that a run names; what passes from operation to operation and never lies in memory; a number.
  enum class Place { kMemory, kPassing, kConstant };
  struct Tensor {
    Place place;
    DType dtype;  // u8: true or false
    Extent4 shape, strides;
    float constant = 0;
  };

  enum class Op {
    kMultiply,
    kAdd,
    kSubtract,
    kDivide,
    kExp,
    kLog,
    kCopy,           // into out's dtype
    kIsAtLeast,      // in[0] >= in[1]
    kSelect,         // in[2] ? in[0] : in[1]
    kIndex,          // of the element of in[0] along `axis`
    kSum,            // over the axes where out is shorter
    kMax,            // likewise
    kMatrixProduct,  // in[0] (B,H,M,N) in[1] (B,K,N,P): H / K heads of in[0] share one of in[1]
    kReshape,        // the same elements, seen with out's shape and strides
  };
  struct Operation {
    Op op;
    std::array<Value, 3> in;
    Value out;
    int axis = 0;
  };

  std::vector<Tensor> tensors;
  std::vector<Operation> operations;

  const Tensor& at(Value v) const { return tensors[static_cast<size_t>(v)]; }

  Value memory(DType dtype, const Extent4& shape, const Extent4& strides) {
    return append({Place::kMemory, dtype, shape, strides});
  }
  Value passing(DType dtype, const Extent4& shape) {
    return append({Place::kPassing, dtype, shape, row_major(shape)});
  }
  Value passing(DType dtype, const Extent4& shape, const Extent4& strides) {
    return append({Place::kPassing, dtype, shape, strides});
  }
  Value constant(float value) {
    return append({Place::kConstant, DType::f32, {1, 1, 1, 1}, {1, 1, 1, 1}, value});
  }

  void into(Value out, Op op, std::array<Value, 3> in) { operations.push_back({op, in, out}); }
  // Elementwise on f32, of a's shape. An operand of one element in a dim is seen by all.
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
  Value is_at_least(Value a, Value b) {
    const Value out = passing(DType::u8, at(a).shape);
    into(out, Op::kIsAtLeast, {a, b, kNone});
    return out;
  }
  Value over_last(Op op, Value a) {
    const Extent4& s = at(a).shape;
    const Value out = passing(DType::f32, {s[0], s[1], s[2], 1});
    into(out, op, {a, kNone, kNone});
    return out;
  }
  Value product(DType dtype, Value a, Value b) {
    const Extent4 &left = at(a).shape, &right = at(b).shape;
    const Value out = passing(dtype, {left[0], left[1], left[2], right[3]});
    into(out, Op::kMatrixProduct, {a, b, kNone});
    return out;
  }
  // a with its last two dims exchanged.
  Value transposed(DType dtype, Value a) {
    const Extent4 &s = at(a).shape, &strides = at(a).strides;
    const Value out =
        passing(dtype, {s[0], s[1], s[3], s[2]}, {strides[0], strides[1], strides[3], strides[2]});
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
