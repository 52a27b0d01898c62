#include "ingot/ops/attention/attention_graph.h"

#include <limits>

namespace ingot {
namespace {

using Op = OpGraph::Op;
using Value = OpGraph::Value;

constexpr int64_t kGranule = 8;  // elements of 16 bits in 16 bytes
constexpr int64_t kMaxDims = 256;
constexpr size_t kSlackBytes = size_t{1} << 20;  // for the kernel's own workspace

FusedAttention::Strides strides_of(const Tensor& t) { return {t.strides[0], t.strides[1], t.strides[2]}; }

bool is_on_granules(const Tensor& t) {
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.strides[0] % kGranule == 0 &&
         t.strides[1] % kGranule == 0 && t.strides[2] % kGranule == 0;
}

// Declare a (B,T,H,D) tensor as (B,H,T,D), and as (B,H,D,T).
Value heads(OpGraph& g, const FusedAttention& p, int64_t H, const FusedAttention::Strides& s) {
  return g.memory(p.dtype, {p.B, H, p.T, p.D}, {s[0], s[2], s[1], 1});
}
Value heads_turned(OpGraph& g, const FusedAttention& p, int64_t H, const FusedAttention::Strides& s) {
  return g.memory(p.dtype, {p.B, H, p.D, p.T}, {s[0], s[2], 1, s[1]});
}
Value per_query(OpGraph& g, const FusedAttention& p) {
  return g.memory(DType::f32, {p.B, p.H, p.T, 1}, {p.H * p.T, p.T, 1, 1});
}

// Sets the scores that a query may not see to the lowest number, or to -inf.
Value masked(AttentionGraph& a, const FusedAttention& p, Value scores) {
  OpGraph& g = a.graph;
  const Value rows = g.index(scores, 2), columns = g.index(scores, 3);
  using Limits = std::numeric_limits<float>;
  const Value lowest = g.constant(p.masks_with_infinity ? -Limits::infinity() : Limits::lowest());
  const Value causal = g.select(g.is_at_least(rows, columns), scores, lowest);
  if (!p.has_documents) return causal;
  a.doc_start = g.memory(DType::i32, {p.B, 1, p.T, 1}, {p.T, p.T, 1, 1});
  return g.select(g.is_at_least(columns, a.doc_start), causal, lowest);
}

// out (K heads) = left right. If query heads share a kv head, their gradients are summed.
void add_key_gradient(OpGraph& g, const FusedAttention& p, Value out, Value left, Value right) {
  if (p.H == p.K) return g.into(out, Op::kMatrixProduct, {left, right, OpGraph::kNone});
  g.into(out, Op::kSum, {g.product(p.dtype, left, right), OpGraph::kNone, OpGraph::kNone});
}

}  // namespace

std::optional<FusedAttention> fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                              const Tensor& out, const Tensor& doc_start,
                                              const AttentionConfig& config) {
  const int64_t T = q.dim(1), D = q.dim(3);
  const bool is_16_bit = q.dtype == DType::bf16 || q.dtype == DType::f16;
  const bool has_window = config.window > 0 && config.window < T;
  if (!is_16_bit || !config.is_causal || has_window || config.dropout.p > 0 || k.dim(1) != T ||
      D % kGranule != 0 || D > kMaxDims)
    return std::nullopt;
  for (const Tensor* t : {&q, &k, &v, &out})
    if (!is_on_granules(*t)) return std::nullopt;
  FusedAttention p;
  p.dtype = q.dtype;
  p.B = q.dim(0), p.T = T, p.H = q.dim(2), p.K = k.dim(2), p.D = D;
  p.scale = config.scale;
  p.has_documents = doc_start || (config.window > 0 && config.window < T);
  p.q = strides_of(q), p.k = strides_of(k), p.v = strides_of(v), p.out = strides_of(out);
  return p;
}

bool has_right_gradients(const FusedAttention& problem, size_t version) {
  constexpr size_t kLastWrong = 91500;
  return problem.T > 1 && (problem.T % 128 == 0 || version > kLastWrong);
}

bool add_gradients(FusedAttention& problem, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                   const Tensor& d_out) {
  for (const Tensor* t : {&dq, &dk, &dv, &d_out})
    if (!is_on_granules(*t)) return false;
  problem.dq = strides_of(dq), problem.dk = strides_of(dk), problem.dv = strides_of(dv);
  problem.d_out = strides_of(d_out);
  return true;
}

AttentionGraph attention_forward_graph(const FusedAttention& p) {
  AttentionGraph a;
  OpGraph& g = a.graph;
  a.q = heads(g, p, p.H, p.q);
  a.k = heads_turned(g, p, p.K, p.k);
  a.v = heads(g, p, p.K, p.v);
  a.out = heads(g, p, p.H, p.out);
  a.lse = per_query(g, p);
  const Value products = g.product(DType::f32, a.q, a.k);
  const Value scores = masked(a, p, g.apply(Op::kMultiply, products, g.constant(p.scale)));
  const Value top = g.over_last(Op::kMax, scores);
  const Value terms = g.apply(Op::kExp, g.apply(Op::kSubtract, scores, top));
  const Value total = g.over_last(Op::kSum, terms);
  g.into(a.lse, Op::kAdd, {top, g.apply(Op::kLog, total), OpGraph::kNone});
  const Value probabilities = g.passing(p.dtype, {p.B, p.H, p.T, p.T});
  g.into(probabilities, Op::kDivide, {terms, total, OpGraph::kNone});
  g.into(a.out, Op::kMatrixProduct, {probabilities, a.v, OpGraph::kNone});
  return a;
}

AttentionGraph attention_backward_graph(const FusedAttention& p) {
  AttentionGraph a;
  OpGraph& g = a.graph;
  a.q = heads(g, p, p.H, p.q);
  a.k = heads_turned(g, p, p.K, p.k);
  a.v = heads_turned(g, p, p.K, p.v);
  a.out = heads(g, p, p.H, p.out);
  a.lse = per_query(g, p);
  a.d_out = heads(g, p, p.H, p.d_out);
  a.dq = heads(g, p, p.H, p.dq);
  a.dk = heads(g, p, p.K, p.dk);
  a.dv = heads(g, p, p.K, p.dv);
  a.delta = per_query(g, p);
  a.dq_sum = g.memory(DType::f32, {p.B, p.H, p.T, p.D}, row_major({p.B, p.H, p.T, p.D}));

  // cuDNN requires a factor on delta; it is 1 without dropout.
  const Value delta = g.over_last(Op::kSum, g.apply(Op::kMultiply, a.d_out, a.out));
  g.into(a.delta, Op::kMultiply, {delta, g.constant(1), OpGraph::kNone});

  const Value scale = g.constant(p.scale);
  const Value scores = g.apply(Op::kMultiply, g.product(DType::f32, a.q, a.k), scale);
  const Value probabilities = g.apply(Op::kExp, masked(a, p, g.apply(Op::kSubtract, scores, a.lse)));
  add_key_gradient(g, p, a.dv, g.transposed(p.dtype, probabilities), a.d_out);

  const Value d_probabilities = g.product(DType::f32, a.d_out, a.v);
  const Value inner = g.apply(Op::kMultiply, g.apply(Op::kSubtract, d_probabilities, a.delta), probabilities);
  const Value d_scores = g.passing(p.dtype, {p.B, p.H, p.T, p.T});
  g.into(d_scores, Op::kMultiply, {inner, scale, OpGraph::kNone});
  add_key_gradient(g, p, a.dk, g.transposed(p.dtype, d_scores), a.q);

  const Value keys = g.transposed(p.dtype, a.k);
  g.into(a.dq_sum, Op::kMatrixProduct, {d_scores, keys, OpGraph::kNone});
  g.into(a.dq, Op::kCopy, {a.dq_sum, OpGraph::kNone, OpGraph::kNone});
  return a;
}

size_t fused_forward_bytes() { return kSlackBytes; }

size_t fused_backward_bytes(const AttentionShape& s) {
  const auto rows = static_cast<size_t>(s.B * s.H * s.T), elements = rows * static_cast<size_t>(s.D);
  // If query heads share kv heads, cuDNN first computes dk and dv of every query head.
  const size_t shared_keys = s.K < s.H ? 2 * elements * sizeof(uint16_t) : 0;
  return rows * sizeof(float) + elements * sizeof(float) + shared_keys + kSlackBytes;
}

}  // namespace ingot
