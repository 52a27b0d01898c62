#include "ingot/nn/primitives/attention.h"

#include <algorithm>
#include <bit>

#include "ingot/core/copy.h"
#include "ingot/nn/primitives/collective.h"
#include "ingot/nn/program/check.h"
#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/norm.h"
#include "ingot/ops/pack_heads.h"
#include "ingot/ops/qk_norm.h"
#include "ingot/ops/rope.h"
#include "ingot/ops/row_sum.h"

namespace ingot {
namespace {

struct Heads {
  Tensor q, k, v;  // (B, T, H or K, D) views of one (N, Q) buffer
  Tensor qk;       // (B, T, H + K, D) q and k together
};

// T: tokens of a sequence.
Heads split(const Tensor& qkv, int64_t T, const HeadsSpec& s) {
  const int64_t B = qkv.dim(0) / T;
  const Tensor by_token = qkv.reshape({B, T, s.qkv_width()});
  const int64_t q_end = s.H * s.D, k_end = (s.H + s.K) * s.D;
  return {by_token.columns(0, q_end).split_last(s.H, s.D),
          by_token.columns(q_end, k_end).split_last(s.K, s.D),
          by_token.columns(k_end, s.qkv_width()).split_last(s.K, s.D),
          by_token.columns(0, k_end).split_last(s.H + s.K, s.D)};
}

// One norm over all queries of a token, and one over all keys: the heads are copied to rows, which the norms
// cover.
struct RowNorms {
  const RotationSpec& spec;
  int64_t N;

  Tensor q(const Tensor& rows) const { return rows.rows(0, N * spec.heads.H); }
  Tensor k(const Tensor& rows) const {
    return rows.rows(N * spec.heads.H, N * (spec.heads.H + spec.heads.K));
  }
  static Tensor wide(const Tensor& rows, int64_t heads) {
    return rows.reshape({rows.dim(0) / heads, heads * rows.dim(1)});
  }
  void forward(const Operands& t, const Tensor& x, const Tensor& gain, const Tensor& raw, const Tensor& rstd,
               const Tensor& room) const {
    const Tensor y = room.rows(0, raw.dim(0));
    const int64_t heads = x.dim(2);
    pack_heads(raw, x, t.ctx.stream);
    rmsnorm_forward({.y = wide(y, heads), .rstd = rstd, .x = wide(raw, heads), .w = gain, .eps = spec.eps},
                    t.ctx.stream);
    unpack_heads(x, y, t.ctx.stream);
  }
  static void backward(const Operands& t, const Tensor& dx, size_t gain, const Tensor& raw,
                       const Tensor& rstd, const Tensor& room, const Tensor& sums) {
    const Tensor rows = room.rows(0, raw.dim(0)), d = wide(rows, dx.dim(2));
    pack_heads(rows, dx, t.ctx.stream);
    rmsnorm_backward({.dx = d,
                      .dw = t.gradient(gain),
                      .dy = d,
                      .x = wide(raw, dx.dim(2)),
                      .w = t.weight(gain),
                      .rstd = rstd,
                      .scratch = sums},
                     t.ctx.stream);
    unpack_heads(dx, rows, t.ctx.stream);
  }
};

// Attention is of heads, which ranks may split, and whole sequences. The gains are whole.
void check_heads(const PlacedOp& p, size_t outputs) {
  p.refuse(0, Placement::kTokens);
  p.expect_alike(outputs);
}

bool norms_rows(const RotationSpec& s) { return s.has_norm && s.is_norm_over_width; }
bool has_gains_of_heads(const RotationSpec& s) { return s.q_gain >= 0 && !s.is_norm_over_width; }

// in: d_qkv, qkv as forward left it, qk_rstd, qk_raw; out: d_qkv, and the rank's terms of the gains'
// gradients.
class RotateBackward final : public Primitive {
 public:
  RotateBackward(const RotationSpec& spec, int64_t T) : spec_(spec), T_(T) {}
  std::string name() const override { return "rotate_backward"; }
  void scratch(const DescribedOp& op, Arena& arena) const override {
    if (has_gains_of_heads(spec_)) gain_room(arena);
    if (!norms_rows(spec_)) return;
    rows(arena, op.out(0).shape[0], op.out(0).dtype);
    alloc_sums(arena, spec_.heads.H * spec_.heads.D);
  }
  void run(const Operands& t) const override {
    const Heads d = split(t.out(0), T_, spec_.heads);
    Stream& stream = t.ctx.stream;
    const Tensor table = spec_.is_rotary ? t.args.rope_table : Tensor{}, rstd = t.in(2), raw = t.in(3);
    const int64_t N = t.out(0).dim(0), H = spec_.heads.H, K = spec_.heads.K, D = spec_.heads.D;
    const Shape& shape = d.qk.shape;
    if (has_gains_of_heads(spec_)) {
      const QkGains d_gains{t.out(1) ? t.out(1) : t.gradient(0), t.out(2) ? t.out(2) : t.gradient(1), H};
      return qk_norm_gain_backward({.dy = d.qk,
                                    .d_gains = d_gains,
                                    .raw = raw.reshape(shape),
                                    .rstd = rstd.reshape({shape[0], shape[1], shape[2]}),
                                    .gains = {t.weight(0), t.weight(1), H},
                                    .table = table,
                                    .scratch = gain_room(t.ctx.scratch)},
                                   stream);
    }
    if (spec_.has_norm && !norms_rows(spec_))
      return qk_norm_backward(d.qk, split(t.in(1), T_, spec_.heads).qk,
                              rstd.reshape({shape[0], shape[1], shape[2]}), table, 0, stream);
    if (table) rope_backward(d.qk, table, 0, stream);
    // The rotation writes queries and keys; the values are read once more.
    if (t.out(0).amax) raise_amax(t.out(0).columns((H + K) * D, spec_.heads.qkv_width()), stream);
    if (!norms_rows(spec_)) return;
    const RowNorms norms{spec_, N};
    const Tensor room = rows(t.ctx.scratch, N, d.q.dtype), sums = alloc_sums(t.ctx.scratch, H * D);
    norms.backward(t, d.q, 0, norms.q(raw), rstd.rows(0, N), room, sums);
    norms.backward(t, d.k, 1, norms.k(raw), rstd.rows(N, 2 * N), room, sums);
  }
  void check(const PlacedOp& p) const override {
    check_heads(p, 1);
    const bool is_term = p.in(0) == Placement::kColumns;
    for (const size_t i : {0u, 1u}) {
      p.expect_term_of(Placement::kColumns, i + 1);
      p.contributes(i, is_term ? Contribution::kTerm : Contribution::kWhole);
    }
  }
  bool raises_amax(size_t out) const override {
    return out == 0 && spec_.is_rotary && spec_.rotates_all && !spec_.has_norm;
  }

 private:
  Tensor gain_room(Arena& arena) const {
    return arena.alloc(DType::f32, {3 * row_sum_parts(arena.device()), spec_.heads.D});
  }
  Tensor rows(Arena& arena, int64_t N, DType dtype) const {
    return arena.alloc(dtype, {N * spec_.heads.H, spec_.heads.D});
  }
  RotationSpec spec_;
  int64_t T_;  // tokens of a sequence
};

// in: qkv; out: qkv, and with QK-norm qk_rstd, by token and head or q's before k's, and with gains the
// queries and keys before the norm, qk_raw.
class Rotate final : public Primitive {
 public:
  Rotate(const RotationSpec& spec, int64_t T) : spec_(spec), T_(T) {}
  std::string name() const override { return "rotate"; }
  void scratch(const DescribedOp& op, Arena& arena) const override {
    if (norms_rows(spec_)) room(arena, op.out(0).shape[0], op.out(0).dtype);
  }
  void run(const Operands& t) const override {
    const Heads heads = split(t.out(0), T_, spec_.heads);
    Stream& stream = t.ctx.stream;
    const Tensor table = spec_.is_rotary ? t.args.rope_table : Tensor{}, rstd = t.out(1), raw = t.out(2);
    const int64_t N = t.out(0).dim(0);
    if (norms_rows(spec_)) {
      const RowNorms norms{spec_, N};
      const Tensor normed = room(t.ctx.scratch, N, heads.q.dtype);
      norms.forward(t, heads.q, t.weight(0), norms.q(raw), rstd.rows(0, N), normed);
      norms.forward(t, heads.k, t.weight(1), norms.k(raw), rstd.rows(N, 2 * N), normed);
    }
    if (!spec_.has_norm || norms_rows(spec_)) {
      if (table) rope_forward(heads.qk, table, 0, stream);
      return;
    }
    const Shape& shape = heads.qk.shape;
    const Tensor by_head = rstd.reshape({shape[0], shape[1], shape[2]});
    if (!has_gains_of_heads(spec_)) return qk_norm_forward(heads.qk, by_head, table, 0, spec_.eps, stream);
    qk_norm_gain_forward({.x = heads.qk,
                          .raw = raw.reshape(shape),
                          .rstd = by_head,
                          .gains = {t.weight(0), t.weight(1), spec_.heads.H},
                          .table = table,
                          .eps = spec_.eps},
                         stream);
  }
  void check(const PlacedOp& p) const override { check_heads(p, p.op.out.size()); }
  void backward(BackwardRule& rule) const override {
    Builder& b = rule.b;
    const Op& op = rule.op;
    const ValueId d = rule.d(0), dx = b.like(d, b[d].name);
    const bool is_partial = has_gains_of_heads(spec_) && b.spec().tp.count > 1;
    PartialGradient dq(b, spec_.q_gain, spec_.heads.D, is_partial),
        dk(b, spec_.k_gain, spec_.heads.D, is_partial);
    // Gains need what the heads were, a norm alone what it made of them.
    const bool reads_qkv = spec_.has_norm && spec_.q_gain < 0 && !norms_rows(spec_);
    std::vector<ValueId> in{d, reads_qkv ? op.out[0] : kNoValue};
    in.insert(in.end(), op.out.begin() + 1, op.out.end());
    Op& made = b.add(std::make_shared<RotateBackward>(spec_, T_), in, {dx, dq.value(), dk.value()});
    made.weights = {spec_.q_gain, spec_.k_gain};
    made.gradients = {dq.direct(), dk.direct()};
    made.in_place = {{0, 0, true}};
    dq.finish();
    dk.finish();
    rule.give(0, dx);
  }

 private:
  Tensor room(Arena& arena, int64_t N, DType dtype) const {
    return arena.alloc(dtype, {N * spec_.heads.H, spec_.heads.D});
  }
  RotationSpec spec_;
  int64_t T_;  // tokens of a sequence
};

// Both passes of attention share their shape and configuration.
class AttentionPass : public Primitive {
 public:
  AttentionPass(const AttentionSpec& spec, const BuildSpec& build)
      : spec_(spec),
        tp_(build.tp),
        shape_{build.B, build.T, build.T, spec.heads.H, spec.heads.K, spec.heads.D},
        has_documents_(build.has_documents) {}
  void check(const PlacedOp& p) const final { check_heads(p, p.op.out.size()); }

 protected:
  AttentionConfig config(const Operands& t) const {
    const DropoutState& state = t.ctx.dropout;
    return {.scale = spec_.scale,
            .is_causal = true,
            .dropout = {.p = state.p,
                        .key = dropout_key(state, spec_.dropout_site),
                        .first_row = state.first_row / shape_.T,
                        .place = state.place,
                        .first_head = tp_.rank * shape_.H,
                        .all_heads = tp_.count * shape_.H},
            .window = window(t),
            .cu_seqlens = t.args.batch->cu_seqlens};
  }
  int64_t window(const Operands& t) const {
    const int64_t of_pass = t.ctx.window, own = spec_.window;
    return own > 0 && of_pass > 0 ? std::min(of_pass, own) : own;
  }
  Tensor by_head(const Tensor& rows) const { return rows.reshape({shape_.B, shape_.T, shape_.H, shape_.D}); }

  AttentionSpec spec_;
  TensorParallel tp_;
  AttentionShape shape_;
  bool has_documents_;
};

// in: d_out, qkv, out, lse; out: d_qkv.
class AttentionBackward final : public AttentionPass {
 public:
  using AttentionPass::AttentionPass;
  std::string name() const override { return "attention_backward"; }
  void scratch(const DescribedOp& /*op*/, Arena& arena) const override { tiles(arena); }
  void run(const Operands& t) const override {
    const Heads heads = split(t.in(1), shape_.T, spec_.heads), d = split(t.out(0), shape_.T, spec_.heads);
    attention_backward({.dq = d.q, .dk = d.k, .dv = d.v, .d_out = by_head(t.in(0))},
                       {.out = by_head(t.in(2)),
                        .lse = t.in(3),
                        .q = heads.q,
                        .k = heads.k,
                        .v = heads.v,
                        .doc_start = t.args.batch->doc_start},
                       config(t), tiles(t.ctx.scratch), t.ctx.stream);
  }

 private:
  Tensor tiles(Arena& arena) const {
    return arena.alloc(DType::f32, {attention_backward_scratch(shape_, arena.device(), has_documents_)});
  }
};

// in: qkv; out: the output (N, H*D) and lse (B, H, T).
class Attention final : public AttentionPass {
 public:
  using AttentionPass::AttentionPass;
  std::string name() const override { return "attention"; }
  void scratch(const DescribedOp& /*op*/, Arena& arena) const override { tiles(arena); }
  void run(const Operands& t) const override {
    const Heads heads = split(t.in(0), shape_.T, spec_.heads);
    attention_forward({.out = by_head(t.out(0)),
                       .lse = t.out(1),
                       .q = heads.q,
                       .k = heads.k,
                       .v = heads.v,
                       .doc_start = t.args.batch->doc_start},
                      config(t), tiles(t.ctx.scratch), t.ctx.stream);
  }
  void backward(BackwardRule& rule) const override {
    const Op& op = rule.op;
    const ValueId d = rule.gradient_like(op.in[0]);
    rule.b.add(std::make_shared<AttentionBackward>(spec_, rule.b.spec()),
               {rule.d(0), op.in[0], op.out[0], op.out[1]}, {d});
    rule.give(0, d);
  }

 private:
  Tensor tiles(Arena& arena) const {
    return arena.alloc(DType::f32, {attention_forward_scratch(shape_, arena.device(), has_documents_)});
  }
};

// Attention of a batch of generation over the cache of its block. in: qkv; out: the output (N, H*D), lse.
class CachedAttention final : public AttentionPass {
 public:
  CachedAttention(const AttentionSpec& spec, const BuildSpec& build, int block)
      : AttentionPass(spec, build), caches_(build.caches), block_(static_cast<size_t>(block)) {}
  std::string name() const override { return "cached_attention"; }
  void scratch(const DescribedOp& /*op*/, Arena& arena) const override { tiles(arena); }
  void run(const Operands& t) const override {
    const KvCache& cache = (*t.args.caches)[block_];
    const Heads heads = split(t.in(0), shape_.T, spec_.heads);
    append_to_cache(cache, heads.k, heads.v, t.args.infer->places(), t.ctx.stream);
    attend(t, cache, t.in(0).columns(0, shape_.H * shape_.D).split_last(shape_.H, shape_.D));
  }

 private:
  Tensor tiles(Arena& arena) const {
    const auto& [B, T, S_unused, H, K, D] = shape_;
    const int64_t S = caches_.positions;
    const auto slots = static_cast<uint64_t>(caches_.slots);
    const auto most =
        static_cast<int64_t>(arena.device() == Device::kCuda ? std::bit_ceil(slots) : slots);  // with padding
    int64_t n = attention_decode_scratch({std::min(T, most), 1, S, H, K, D}, arena.device());
    if (T > 1) n = std::max(n, attention_forward_scratch({1, std::min(T, S), S, H, K, D}, arena.device()));
    return arena.alloc(DType::f32, {n});
  }
  // The segments of one token go together; each of the others is a call of its own. On a device these take
  // Ingot's kernel, because cuDNN makes a plan for every new length.
  void attend(const Operands& t, const KvCache& cache, const Tensor& q) const {
    const InferBatch& batch = *t.args.infer;
    const Tensor out = t.out(0), lse = t.out(1), scratch = tiles(t.ctx.scratch);
    const Tensor heads = out.split_last(shape_.H, shape_.D);  // (N, H, D)
    const auto rows_of = [](const Tensor& all, int64_t begin, int64_t end) {
      const Tensor rows = all.rows(begin, end);
      Tensor view(rows.data, rows.dtype, {1, end - begin, rows.dim(1), rows.dim(2)}, rows.device);
      view.strides = {rows.strides[0] * (end - begin), rows.strides[0], rows.strides[1], rows.strides[2]};
      return view;
    };
    Stream& stream = t.ctx.stream;
    const int64_t decode_tokens = batch.decode_tokens();
    if (decode_tokens > 0)
      attention_decode({.out = rows_of(heads, 0, decode_tokens),
                        .q = rows_of(q, 0, decode_tokens),
                        .cache = cache,
                        .places = batch.places().rows(0, decode_tokens),
                        .longest = batch.longest_decode()},
                       {.scale = spec_.scale, .window = spec_.window}, scratch, stream);
    int64_t n = decode_tokens;
    for (const InferSegment& s : batch.segments()) {
      if (s.count == 1) continue;
      const int64_t S = s.first + s.count;
      const Tensor own_lse(lse.data, DType::f32, {1, shape_.H, s.count}, lse.device);
      attention_forward({.out = rows_of(heads, n, n + s.count),
                         .lse = stream.device == Device::kCpu ? own_lse : Tensor{},
                         .q = rows_of(q, n, n + s.count),
                         .k = cache.keys(s.slot, S),
                         .v = cache.values(s.slot, S)},
                        {.scale = spec_.scale, .is_causal = true, .window = spec_.window}, scratch, stream);
      n += s.count;
    }
    if (n < batch.rows()) fill_zero(out.rows(n, batch.rows()), stream);
  }

  CacheShape caches_;
  size_t block_;
};

}  // namespace

ValueId rotate(Builder& b, ValueId qkv, const RotationSpec& spec) {
  if (!spec.is_rotary && !spec.has_norm) return qkv;
  b.require(qkv, Placement::kWhole, Placement::kColumns, "rotate");
  const Value from = b[qkv];
  const int64_t N = from.shape[0], H = spec.heads.H, K = spec.heads.K;
  std::vector<ValueId> out{b.like(qkv, "qkv")};
  if (spec.has_norm)
    out.push_back(
        b.value("qk_rstd", DType::f32, {N * (spec.is_norm_over_width ? 2 : H + K)}, from.placement));
  if (norms_rows(spec) || has_gains_of_heads(spec))
    out.push_back(b.value("qk_raw", from.dtype, {N * (H + K), spec.heads.D}, from.placement));
  const ValueId rotated = out[0];
  Op& op = b.add(std::make_shared<Rotate>(spec, b.spec().T), {qkv}, std::move(out));
  op.weights = {spec.q_gain, spec.k_gain};
  op.in_place = {{0, 0, true}};
  return rotated;
}

ValueId attention(Builder& b, ValueId qkv, const AttentionSpec& spec) {
  b.require(qkv, Placement::kWhole, Placement::kColumns, "attention");
  const Value from = b[qkv];
  const BuildSpec& s = b.spec();
  const ValueId out =
      b.value("out", from.dtype, {from.shape[0], spec.heads.H * spec.heads.D}, from.placement);
  const ValueId lse = b.value("lse", DType::f32, {s.B, spec.heads.H, s.T}, from.placement);
  if (s.caches.slots > 0)
    b.add(std::make_shared<CachedAttention>(spec, s, b.scope().block), {qkv}, {out, lse});
  else
    b.add(std::make_shared<Attention>(spec, s), {qkv}, {out, lse});
  return out;
}

}  // namespace ingot
