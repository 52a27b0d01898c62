// Computes an OpGraph in double precision, one operation at a time, directly from
// the operations' definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "ingot/ops/cuda/op_graph.h"
#include "tests/reference/numeric.h"

namespace ingot::test {

// The contents of a graph's memory tensors, laid out by their strides.
using GraphMemory = std::map<OpGraph::Value, Doubles>;

class GraphReference {
 public:
  // Runs the graph's operations in order; reads and writes `memory`.
  GraphReference(const OpGraph& graph, GraphMemory& memory) : graph_(graph), values_(graph.tensors.size()) {
    for (const OpGraph::Operation& o : graph.operations) run(o, memory);
  }

 private:
  using Value = OpGraph::Value;
  using Op = OpGraph::Op;

  template <typename F>
  static void for_each(const Extent4& shape, F&& f) {
    Extent4 at{};
    for (at[0] = 0; at[0] < shape[0]; ++at[0])
      for (at[1] = 0; at[1] < shape[1]; ++at[1])
        for (at[2] = 0; at[2] < shape[2]; ++at[2])
          for (at[3] = 0; at[3] < shape[3]; ++at[3]) f(at);
  }
  static size_t offset(const Extent4& at, const Extent4& strides) {
    int64_t sum = 0;
    for (size_t i = 0; i < 4; ++i) sum += at[i] * strides[i];
    return static_cast<size_t>(sum);
  }

  // Element i of a (S, 1, 1, 1) tensor of integers.
  static int64_t integer(Value v, int64_t i, const GraphMemory& memory) {
    return static_cast<int64_t>(memory.at(v).at(static_cast<size_t>(i)));
  }

  // Place of an element in the memory of a tensor.
  static size_t place(const OpGraph::Tensor& t, Extent4 at, const GraphMemory& memory) {
    if (t.offsets == OpGraph::kNone) return offset(at, t.strides);
    const int64_t first = integer(t.offsets, at[0], memory) * t.offset_factor;
    at[0] = 0;
    return static_cast<size_t>(first) + offset(at, t.strides);
  }

  // True if the element lies in its sequence. Ragged tensors are (S, heads, tokens, D) or (S, heads, D,
  // tokens), with more elements between tokens than between the numbers of a head.
  static bool is_inside(const OpGraph::Tensor& t, const Extent4& at, const GraphMemory& memory) {
    if (t.offsets == OpGraph::kNone) return true;
    const int64_t per_token = std::max(t.strides[2], t.strides[3]);
    const int64_t token = t.strides[2] >= t.strides[3] ? at[2] : at[3];
    const int64_t first = integer(t.offsets, at[0], memory) * t.offset_factor;
    return token < (integer(t.offsets, at[0] + 1, memory) * t.offset_factor - first) / per_token;
  }

  // Returns element `at` of a tensor; a dim of size 1 is broadcast. What lies beyond a sequence is not a
  // number, so that a result that depends on it shows.
  double get(Value v, Extent4 at, const GraphMemory& memory) const {
    const OpGraph::Tensor& t = graph_.at(v);
    if (t.place == OpGraph::Place::kConstant) return static_cast<double>(t.constant);
    for (size_t i = 0; i < 4; ++i)
      if (t.shape[i] == 1) at[i] = 0;
    if (t.place == OpGraph::Place::kMemory) {
      if (!is_inside(t, at, memory)) return std::numeric_limits<double>::quiet_NaN();
      return memory.at(v).at(place(t, at, memory));
    }
    return values_[static_cast<size_t>(v)].at(offset(at, row_major(t.shape)));
  }
  void put(Value v, const Extent4& at, double value, GraphMemory& memory) {
    const OpGraph::Tensor& t = graph_.at(v);
    if (t.place == OpGraph::Place::kMemory) {
      if (is_inside(t, at, memory)) memory.at(v).at(place(t, at, memory)) = value;
      return;
    }
    Doubles& kept = values_[static_cast<size_t>(v)];
    kept.resize(static_cast<size_t>(t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3]));
    kept[offset(at, row_major(t.shape))] = value;
  }

  double elementwise(const OpGraph::Operation& o, const Extent4& at, const GraphMemory& memory) const {
    const auto in = [&](size_t i) { return get(o.in[i], at, memory); };
    switch (o.op) {
      case Op::kMultiply:
        return in(0) * in(1);
      case Op::kAdd:
        return in(0) + in(1);
      case Op::kSubtract:
        return in(0) - in(1);
      case Op::kDivide:
        return in(0) / in(1);
      case Op::kExp:
        return std::exp(in(0));
      case Op::kLog:
        return std::log(in(0));
      case Op::kCopy:
        return in(0);
      case Op::kIsAtLeast:
        return in(0) >= in(1) ? 1 : 0;
      case Op::kIsAbove:
        return in(0) > in(1) ? 1 : 0;
      case Op::kIsBelow:
        return in(0) < in(1) ? 1 : 0;
      case Op::kAnd:
        return in(0) != 0 && in(1) != 0 ? 1 : 0;
      case Op::kSelect:
        return in(2) != 0 ? in(0) : in(1);
      default:
        return static_cast<double>(at[static_cast<size_t>(o.axis)]);
    }
  }

  // Reduces over the axes where `out` has one element. On the head axis, `out` may have
  // one element for several heads.
  void reduce(const OpGraph::Operation& o, GraphMemory& memory) {
    const Extent4 &from = graph_.at(o.in[0]).shape, &to = graph_.at(o.out).shape;
    std::map<Extent4, double> found;
    for_each(from, [&](const Extent4& at) {
      Extent4 place = at;
      for (size_t i = 0; i < 4; ++i) place[i] = at[i] / (from[i] / to[i]);
      const double value = get(o.in[0], at, memory);
      const auto [entry, is_first] = found.emplace(place, value);
      if (!is_first)
        entry->second = o.op == Op::kSum ? entry->second + value : std::max(entry->second, value);
    });
    for (const auto& [at, value] : found) put(o.out, at, value, memory);
  }

  void multiply(const OpGraph::Operation& o, GraphMemory& memory) {
    const Extent4 &a = graph_.at(o.in[0]).shape, &b = graph_.at(o.in[1]).shape;
    const auto length = [&](Value lengths, int64_t sequence, int64_t most) {
      return lengths == OpGraph::kNone ? most : integer(lengths, sequence, memory);
    };
    for_each({a[0], a[1], a[2], b[3]}, [&](const Extent4& at) {
      const bool is_in = at[2] < length(o.lengths.m, at[0], a[2]) && at[3] < length(o.lengths.n, at[0], b[3]);
      const int64_t terms = is_in ? length(o.lengths.k, at[0], a[3]) : 0;
      double sum = 0;
      for (int64_t k = 0; k < terms; ++k)
        sum += get(o.in[0], {at[0], at[1], at[2], k}, memory) *
               get(o.in[1], {at[0], at[1] / (a[1] / b[1]), k, at[3]}, memory);
      put(o.out, at, sum, memory);
    });
  }

  void run(const OpGraph::Operation& o, GraphMemory& memory) {
    if (o.op == Op::kMatrixProduct) return multiply(o, memory);
    if (o.op == Op::kSum || o.op == Op::kMax) return reduce(o, memory);
    if (o.op == Op::kReshape)  // the only reshapes are transpositions of the last two dims
      return for_each(graph_.at(o.out).shape, [&](const Extent4& at) {
        put(o.out, at, get(o.in[0], {at[0], at[1], at[3], at[2]}, memory), memory);
      });
    for_each(graph_.at(o.out).shape,
             [&](const Extent4& at) { put(o.out, at, elementwise(o, at, memory), memory); });
  }

  const OpGraph& graph_;
  std::vector<Doubles> values_;
};

}  // namespace ingot::test
