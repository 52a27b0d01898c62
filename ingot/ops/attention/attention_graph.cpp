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

int64_t batch_of(const FusedAttention& p) { return p.documents > 0 ? p.documents : p.B; }

// Declare a (B,T,H,D) tensor as (B,H,T,D), and as (B,H,D,T). With documents, `at` are their offsets.
Value heads(OpGraph& g, const FusedAttention& p, int64_t H, const FusedAttention::Strides& s, Value at) {
  return g.ragged(p.dtype, {batch_of(p), H, p.T, p.D}, {s[0], s[2], s[1], 1}, at);
}
Value heads_turned(OpGraph& g, const FusedAttention& p, int64_t H, const FusedAttention::Strides& s,
                   Value at) {
  return g.ragged(p.dtype, {batch_of(p), H, p.D, p.T}, {s[0], s[2], 1, s[1]}, at);
}
Value per_query(OpGraph& g, const FusedAttention& p, Value at) {
  const Extent4 by_head{p.H * p.T, p.T, 1, 1}, by_token{p.H * p.T, 1, p.H, 1};
  return g.ragged(DType::f32, {batch_of(p), p.H, p.T, 1}, p.documents > 0 ? by_token : by_head, at);
}

void add_table(AttentionGraph& a, const FusedAttention& p) {
  if (p.documents == 0) return;
  const auto numbers = [&](int64_t count) {
    return a.graph.memory(DType::i32, {count, 1, 1, 1}, {1, 1, 1, 1});
  };
  a.lengths = numbers(p.documents);
  a.qkv_at = numbers(p.documents + 1);
  a.out_at = numbers(p.documents + 1);
  a.lse_at = numbers(p.documents + 1);
}

Value hidden_score(OpGraph& g, const FusedAttention& p) {
  using Limits = std::numeric_limits<float>;
  return g.constant(p.masks_with_infinity ? -Limits::infinity() : Limits::lowest());
}

// Sets the scores outside a document's own rows and columns to the lowest number, or to -inf.
Value within_document(AttentionGraph& a, const FusedAttention& p, Value scores) {
  if (p.documents == 0) return scores;
  OpGraph& g = a.graph;
  const Value rows = g.index(scores, 2), columns = g.index(scores, 3);
  const Value row_is_in = g.test(Op::kIsBelow, rows, a.lengths);
  const Value column_is_in = g.test(Op::kIsBelow, columns, a.lengths);
  return g.select(g.test(Op::kAnd, row_is_in, column_is_in), scores, hidden_score(g, p));
}

// Sets the scores that a query may not see to the lowest number, or to -inf.
Value masked(AttentionGraph& a, const FusedAttention& p, Value scores) {
  OpGraph& g = a.graph;
  const Value rows = g.index(scores, 2), columns = g.index(scores, 3);
  const Value lowest = hidden_score(g, p);
  Value visible = g.select(g.test(Op::kIsAtLeast, rows, columns), scores, lowest);
  if (p.window > 0) {  // in the form that cuDNN knows, so that it skips what the window hides
    const Value own_rows = g.index(scores, 2), own_columns = g.index(scores, 3);
    const Value ends = g.passing(DType::i32, g.at(scores).shape);
    g.into(ends, Op::kAdd,
           {own_columns, g.constant(static_cast<float>(p.window), DType::i32), OpGraph::kNone});
    visible = g.select(g.test(Op::kIsAbove, ends, own_rows), visible, lowest);
  }
  if (!p.has_documents || p.documents > 0) return visible;
  a.doc_start = g.memory(DType::i32, {p.B, 1, p.T, 1}, {p.T, p.T, 1, 1});
  return g.select(g.test(Op::kIsAtLeast, columns, a.doc_start), visible, lowest);
}

// Products of the graph whose rows and columns are queries (q) and keys (k).
OpGraph::Lengths query_by_key(const AttentionGraph& a) { return {.m = a.lengths, .n = a.lengths}; }
OpGraph::Lengths summed(const AttentionGraph& a) { return {.m = a.lengths, .k = a.lengths}; }

// The bytes of lengths and offsets of as many documents as there may be, of lse by tokens, and a kernel's
// workspace.
size_t document_bytes(const AttentionShape& s) {
  const int64_t most = s.B * s.T / kLeastDocumentTokens;
  return static_cast<size_t>(4 * (most + 1) + s.B * s.T * s.H) * sizeof(float) + kSlackBytes;
}

// out (K heads) = left right. If query heads share a kv head, their gradients are summed; with documents, the
// returned memory has the gradient of every query head.
Value add_key_gradient(AttentionGraph& a, const FusedAttention& p, Value out, Value left, Value right) {
  OpGraph& g = a.graph;
  if (p.H == p.K) {
    g.product_into(out, left, right, summed(a));
    return OpGraph::kNone;
  }
  Value all = OpGraph::kNone, kept = OpGraph::kNone;
  if (p.documents == 0) {
    all = g.product(p.dtype, left, right, {});
  } else {
    const int64_t shared = p.H / p.K;
    const Extent4 s = g.at(out).strides;
    kept = all = g.ragged(p.dtype, {p.documents, p.H, p.T, p.D}, {s[0] * shared, s[1], s[2] * shared, 1},
                          a.qkv_at, shared);
    g.product_into(all, left, right, summed(a));
  }
  g.into(out, Op::kSum, {all, OpGraph::kNone, OpGraph::kNone});
  return kept;
}

}  // namespace

std::optional<FusedAttention> fused_attention(const AttentionOperands& operands,
                                              const AttentionConfig& config) {
  const auto& [out, lse, q, k, v, doc_start] = operands;
  const int64_t T = q.dim(1), D = q.dim(3);
  const bool is_16_bit = q.dtype == DType::bf16 || q.dtype == DType::f16;
  if (!is_16_bit || !config.is_causal || config.dropout.p > 0 || k.dim(1) != T || D % kGranule != 0 ||
      D > kMaxDims)
    return std::nullopt;
  for (const Tensor* t : {&q, &k, &v, &out})
    if (!is_on_granules(*t)) return std::nullopt;
  FusedAttention p;
  p.dtype = q.dtype;
  p.B = q.dim(0), p.T = T, p.H = q.dim(2), p.K = k.dim(2), p.D = D;
  p.scale = config.scale;
  p.window = config.window < T ? config.window : 0;
  p.has_documents = static_cast<bool>(doc_start);
  p.q = strides_of(q), p.k = strides_of(k), p.v = strides_of(v), p.out = strides_of(out);
  return p;
}

bool has_right_gradients(const FusedAttention& problem, size_t version) {
  constexpr size_t kLastWrong = 91500;
  return problem.T > 1 && (problem.T % 128 == 0 || version > kLastWrong);
}

bool add_gradients(FusedAttention& problem, const AttentionGradients& d) {
  for (const Tensor* t : {&d.dq, &d.dk, &d.dv, &d.d_out})
    if (!is_on_granules(*t)) return false;
  problem.dq = strides_of(d.dq), problem.dk = strides_of(d.dk), problem.dv = strides_of(d.dv);
  problem.d_out = strides_of(d.d_out);
  return true;
}

bool take_documents(FusedAttention& p, const AttentionConfig& config, size_t version) {
  constexpr size_t kLastUntrusted = 91500;
  constexpr int64_t kMaxElements = std::numeric_limits<int32_t>::max();
  const int64_t documents = config.cu_seqlens ? config.cu_seqlens.dim(0) - 1 : 0, rows = p.B * p.T;
  if (documents <= 0 || documents > rows / kLeastDocumentTokens || version <= kLastUntrusted || p.D % 16 != 0)
    return false;
  // A document's rows are at one distance from each other across the batch, which q, k and v share, and so do
  // their gradients.
  const auto is_even = [&](const FusedAttention::Strides& s) { return s[0] == p.T * s[1]; };
  for (const auto* s : {&p.q, &p.k, &p.v, &p.out})
    if (!is_even(*s)) return false;
  // The gradients of keys and values of all query heads have the largest offsets.
  const int64_t widest = std::max(p.q[1] * (p.H / p.K), p.out[1]);
  if (p.k[1] != p.q[1] || p.v[1] != p.q[1] || rows * widest > kMaxElements) return false;
  if (p.dq[1] != 0) {
    for (const auto* s : {&p.dq, &p.dk, &p.dv, &p.d_out})
      if (!is_even(*s)) return false;
    if (p.dq[1] != p.q[1] || p.dk[1] != p.q[1] || p.dv[1] != p.q[1] || p.d_out[1] != p.out[1]) return false;
  }
  p.documents = documents;
  p.has_documents = false;
  return true;
}

AttentionGraph attention_forward_graph(const FusedAttention& p) {
  AttentionGraph a;
  OpGraph& g = a.graph;
  add_table(a, p);
  a.q = heads(g, p, p.H, p.q, a.qkv_at);
  a.k = heads_turned(g, p, p.K, p.k, a.qkv_at);
  a.v = heads(g, p, p.K, p.v, a.qkv_at);
  a.out = heads(g, p, p.H, p.out, a.out_at);
  a.lse = per_query(g, p, a.lse_at);
  const Value products = g.product(DType::f32, a.q, a.k, query_by_key(a));
  const Value scaled = g.apply(Op::kMultiply, products, g.constant(p.scale));
  const Value scores = masked(a, p, within_document(a, p, scaled));
  const Value top = g.over_last(Op::kMax, scores);
  const Value terms = g.apply(Op::kExp, g.apply(Op::kSubtract, scores, top));
  const Value total = g.over_last(Op::kSum, terms);
  g.into(a.lse, Op::kAdd, {top, g.apply(Op::kLog, total), OpGraph::kNone});
  const Value probabilities = g.passing(p.dtype, {batch_of(p), p.H, p.T, p.T});
  g.into(probabilities, Op::kDivide, {terms, total, OpGraph::kNone});
  g.product_into(a.out, probabilities, a.v, summed(a));
  return a;
}

AttentionGraph attention_backward_graph(const FusedAttention& p) {
  AttentionGraph a;
  OpGraph& g = a.graph;
  add_table(a, p);
  a.q = heads(g, p, p.H, p.q, a.qkv_at);
  a.k = heads_turned(g, p, p.K, p.k, a.qkv_at);
  a.v = heads_turned(g, p, p.K, p.v, a.qkv_at);
  a.out = heads(g, p, p.H, p.out, a.out_at);
  a.lse = per_query(g, p, a.lse_at);
  a.d_out = heads(g, p, p.H, p.d_out, a.out_at);
  a.dq = heads(g, p, p.H, p.dq, a.qkv_at);
  a.dk = heads(g, p, p.K, p.dk, a.qkv_at);
  a.dv = heads(g, p, p.K, p.dv, a.qkv_at);
  a.delta = per_query(g, p, a.lse_at);
  const Extent4 shape{batch_of(p), p.H, p.T, p.D};
  a.dq_sum = p.documents > 0 ? g.ragged(DType::f32, shape, g.at(a.dq).strides, a.qkv_at)
                             : g.memory(DType::f32, shape, row_major(shape));

  // cuDNN requires a factor on delta; it is 1 without dropout.
  const Value delta = g.over_last(Op::kSum, g.apply(Op::kMultiply, a.d_out, a.out));
  g.into(a.delta, Op::kMultiply, {delta, g.constant(1), OpGraph::kNone});

  const Value scale = g.constant(p.scale);
  const Value scores = g.apply(Op::kMultiply, g.product(DType::f32, a.q, a.k, query_by_key(a)), scale);
  const Value exponents = g.apply(Op::kSubtract, within_document(a, p, scores), a.lse);
  const Value probabilities = g.apply(Op::kExp, masked(a, p, exponents));
  a.dv_heads = add_key_gradient(a, p, a.dv, g.transposed(p.dtype, probabilities), a.d_out);

  const Value d_probabilities = g.product(DType::f32, a.d_out, a.v, query_by_key(a));
  const Value inner = g.apply(Op::kMultiply, g.apply(Op::kSubtract, d_probabilities, a.delta), probabilities);
  const Value d_scores = g.passing(p.dtype, {batch_of(p), p.H, p.T, p.T});
  g.into(d_scores, Op::kMultiply, {inner, scale, OpGraph::kNone});
  a.dk_heads = add_key_gradient(a, p, a.dk, g.transposed(p.dtype, d_scores), a.q);

  const Value keys = g.transposed(p.dtype, a.k);
  g.product_into(a.dq_sum, d_scores, keys, summed(a));
  g.into(a.dq, Op::kCopy, {a.dq_sum, OpGraph::kNone, OpGraph::kNone});
  return a;
}

size_t fused_forward_bytes(const AttentionShape& s, bool has_documents) {
  return kSlackBytes + (has_documents ? document_bytes(s) : 0);
}

size_t fused_backward_bytes(const AttentionShape& s, bool has_documents) {
  const auto rows = static_cast<size_t>(s.B * s.H * s.T), elements = rows * static_cast<size_t>(s.D);
  // If query heads share kv heads, cuDNN first computes dk and dv of every query head.
  const bool shares = s.K < s.H;
  const size_t shared_keys = shares ? 2 * elements * sizeof(uint16_t) : 0;
  const size_t masked = rows * sizeof(float) + elements * sizeof(float) + shared_keys + kSlackBytes;
  if (!has_documents) return masked;
  const auto packed = static_cast<size_t>(s.B * s.T * (s.H + 2 * s.K) * s.D);
  const size_t of_heads = shares ? 2 * packed * static_cast<size_t>(s.H / s.K) * sizeof(uint16_t) : 0;
  return std::max(masked, document_bytes(s) + rows * sizeof(float) + packed * sizeof(float) + of_heads);
}

}  // namespace ingot
