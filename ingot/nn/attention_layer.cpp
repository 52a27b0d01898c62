#include "ingot/nn/attention_layer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ingot/core/copy.h"
#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/dropout.h"
#include "ingot/ops/head_rows.h"
#include "ingot/ops/rmsnorm.h"
#include "ingot/ops/rope.h"
#include "ingot/ops/row_sum.h"

namespace ingot {
namespace {

// YaRN multiplies q and k; their products are multiplied here instead, so that the rotations stay rotations.
double score_scale(const ModelConfig& config, int layer) {
  const double factor = config.is_rotary(layer) ? config.rope_scaling.q_and_k_factor() : 1;
  return factor * factor / std::sqrt(static_cast<double>(config.head_dim));
}

}  // namespace

AttentionLayer::AttentionLayer(ParamList& params, int unit, const std::string& prefix,
                               const ModelConfig& config, const TensorParallel& tp, int index)
    : tp_(tp),
      H_(tp.slice(config.heads)),
      K_(tp.slice(config.kv_heads, 1)),
      D_(config.head_dim),
      C_(config.width),
      window_(config.window_of(index)),
      has_qk_norm_(config.has_qk_norm),
      is_norm_over_width_(config.qk_norm_over == QkNormOver::kWidth),
      is_norm_after_(config.norm_place == NormPlace::kAfter),
      is_rotary_(config.is_rotary(index)),
      scale_(static_cast<float>(score_scale(config, index))),
      eps_(static_cast<float>(config.norm_eps)),
      dropout_site_(static_cast<uint32_t>(2 * index + 1)),
      probabilities_site_(kAttentionSites + static_cast<uint32_t>(index)),
      norm_(params, unit, prefix + "attention.norm", config, tp) {
  const bool is_zero = config.projection_init == ProjectionInit::kZero;
  const double scaled = config.projection_init == ProjectionInit::kScaled
                            ? config.matrix_std() / std::sqrt(2.0 * static_cast<double>(config.layers))
                            : config.matrix_std();
  const int64_t q_rows = config.heads * D_, kv_rows = config.kv_heads * D_;
  qkv_ = Linear(params,
                {.unit = unit,
                 .prefix = prefix + "attention.qkv",
                 .out = config.qkv_width(),
                 .in = C_,
                 .split = Split::kOutputs,
                 .fused_rows = {q_rows, kv_rows, kv_rows},
                 .least_rows = D_,
                 .std = config.matrix_std(),
                 .has_bias = config.has_bias_of_qkv()},
                tp);
  proj_ = Linear(params,
                 {.unit = unit,
                  .prefix = prefix + "attention.proj",
                  .out = C_,
                  .in = q_rows,
                  .split = Split::kInputs,
                  .init = is_zero ? Init::kZero : Init::kNormal,
                  .std = scaled,
                  .has_bias = config.has_bias},
                 tp);
  if (!config.has_qk_norm_gain) return;
  const auto add_gain = [&](const char* name, int64_t heads) {
    return params.add({.name = prefix + name,
                       .shape = {config.qk_gain_width(heads)},
                       .role = ParamRole::kNorm,
                       .init = Init::kOne,
                       .unit = unit});
  };
  q_gain_ = add_gain("attention.q_norm.weight", config.heads);
  k_gain_ = add_gain("attention.k_norm.weight", config.kv_heads);
}

AttentionLayer::Saved AttentionLayer::make_saved(Arena& arena, int64_t B, int64_t T, DType compute,
                                                 const AttentionPlaces& places, const Saved& shared) const {
  const int64_t N = B * T, n = tp_.rows(N);
  Saved saved = shared;
  saved.norm = {};
  saved.x = place_tensor(arena, places.x, compute, {n, C_}, shared.x);
  if (!is_norm_after_) saved.h = place_tensor(arena, places.h, compute, {n, C_}, shared.h);
  if (is_norm_after_) saved.post = place_tensor(arena, places.post, compute, {n, C_}, shared.post);
  if (places.has_codes) {
    saved.h_codes = qkv_.make_codes(arena, N);
    saved.out_codes = proj_.make_codes(arena, N);
  }
  if (places.heads != Place::kOwn) return saved;
  saved.qkv = arena.alloc(compute, {N, qkv_width()});
  if (has_qk_norm_) saved.qk_rstd = arena.alloc(DType::f32, {N * (norms(H_) + norms(K_))});
  if (norms_rows() || has_gains_of_heads()) saved.qk_raw = arena.alloc(compute, {N * (H_ + K_), D_});
  saved.out = arena.alloc(compute, {N, H_ * D_});
  saved.lse = arena.alloc(DType::f32, {B, H_, T});
  return saved;
}

AttentionLayer::Heads AttentionLayer::split(const Tensor& qkv, int64_t B, int64_t T) const {
  const Tensor by_token = qkv.reshape({B, T, qkv_width()});
  return {by_token.columns(0, H_ * D_).split_last(H_, D_),
          by_token.columns(H_ * D_, (H_ + K_) * D_).split_last(K_, D_),
          by_token.columns((H_ + K_) * D_, qkv_width()).split_last(K_, D_),
          by_token.columns(0, (H_ + K_) * D_).split_last(H_ + K_, D_)};
}

AttentionConfig AttentionLayer::config(const LayerContext& ctx, int64_t T,
                                       const DocumentMask& documents) const {
  return {.scale = scale_,
          .is_causal = true,
          .dropout = {.p = ctx.dropout.p,
                      .key = dropout_key(ctx.dropout, probabilities_site_),
                      .first_row = ctx.dropout.first_row / T,
                      .place = ctx.dropout.place,
                      .first_head = tp_.rank * H_,
                      .all_heads = tp_.count * H_},
          .window = window_,
          .first_rows = documents.first_rows};
}

void AttentionLayer::normalise(LayerContext& ctx, const Tensor& x, int gain, const Tensor& raw,
                               const Tensor& rstd, const Tensor& normed) const {
  const Tensor y = normed.rows(0, raw.dim(0));
  const int64_t heads = x.dim(2);
  heads_to_rows(raw, x, ctx.stream);
  rmsnorm_forward(norm_rows(y, heads), rstd, norm_rows(raw, heads), ctx.params.weight(gain), eps_,
                  ctx.stream);
  rows_to_heads(x, y, ctx.stream);
}

void AttentionLayer::normalise_backward(LayerContext& ctx, const Tensor& dx, int gain, const Tensor& raw,
                                        const Tensor& rstd, const HeadsScratch& scratch) const {
  const Tensor rows = scratch.rows.rows(0, raw.dim(0)), d = norm_rows(rows, dx.dim(2));
  heads_to_rows(rows, dx, ctx.stream);
  rmsnorm_backward(d, ctx.params.grad(gain), d, norm_rows(raw, dx.dim(2)), ctx.params.weight(gain), rstd, {},
                   scratch.sums, ctx.stream);
  rows_to_heads(dx, rows, ctx.stream);
}

void AttentionLayer::rotate(LayerContext& ctx, const Saved& saved, const Heads& heads,
                            const Tensor& rope_table, const Tensor& normed) const {
  const int64_t B = heads.q.dim(0), T = heads.q.dim(1), N = B * T, q_norms = N * norms(H_);
  if (norms_rows()) {
    normalise(ctx, heads.q, q_gain_, saved.qk_raw.rows(0, N * H_), saved.qk_rstd.rows(0, q_norms), normed);
    normalise(ctx, heads.k, k_gain_, saved.qk_raw.rows(N * H_, N * (H_ + K_)),
              saved.qk_rstd.rows(q_norms, saved.qk_rstd.dim(0)), normed);
  }
  if (!has_qk_norm_ || norms_rows()) {
    if (rope_table) rope_forward(heads.qk, rope_table, 0, ctx.stream);
    return;
  }
  const Tensor rstd = saved.qk_rstd.reshape({B, T, H_ + K_});
  if (!has_gains_of_heads()) return qk_norm_forward(heads.qk, rstd, rope_table, 0, eps_, ctx.stream);
  qk_norm_gain_forward(heads.qk, saved.qk_raw.reshape(heads.qk.shape), rstd, gains(ctx), rope_table, 0, eps_,
                       ctx.stream);
}

QkGains AttentionLayer::gains(LayerContext& ctx) const {
  return {ctx.params.weight(q_gain_), ctx.params.weight(k_gain_), H_};
}

void AttentionLayer::rotate_gains_backward(LayerContext& ctx, const Saved& saved, const Heads& d,
                                           const Tensor& rope_table, const HeadsScratch& scratch) const {
  const QkGains d_gains{partial_gradient(ctx, q_gain_, scratch.partials[0]),
                        partial_gradient(ctx, k_gain_, scratch.partials[1]), H_};
  const Shape& heads = d.qk.shape;
  qk_norm_gain_backward(d.qk, d_gains, saved.qk_raw.reshape(heads),
                        saved.qk_rstd.reshape({heads[0], heads[1], heads[2]}), gains(ctx), rope_table, 0,
                        scratch.gain_scratch, ctx.stream);
  add_partial_gradient(ctx, q_gain_, d_gains.q);
  add_partial_gradient(ctx, k_gain_, d_gains.k);
}

void AttentionLayer::rotate_backward(LayerContext& ctx, const Saved& saved, const Heads& d,
                                     const Heads& heads, const Tensor& rope_table,
                                     const HeadsScratch& scratch) const {
  const int64_t B = d.q.dim(0), T = d.q.dim(1), N = B * T, q_norms = N * norms(H_);
  if (has_gains_of_heads()) return rotate_gains_backward(ctx, saved, d, rope_table, scratch);
  if (has_qk_norm_ && !norms_rows()) {
    return qk_norm_backward(d.qk, heads.qk, saved.qk_rstd.reshape({B, T, H_ + K_}), rope_table, 0,
                            ctx.stream);
  }
  if (rope_table) rope_backward(d.qk, rope_table, 0, ctx.stream);
  if (!norms_rows()) return;
  normalise_backward(ctx, d.q, q_gain_, saved.qk_raw.rows(0, N * H_), saved.qk_rstd.rows(0, q_norms),
                     scratch);
  normalise_backward(ctx, d.k, k_gain_, saved.qk_raw.rows(N * H_, N * (H_ + K_)),
                     saved.qk_rstd.rows(q_norms, saved.qk_rstd.dim(0)), scratch);
}

void AttentionLayer::use_fp8(const ParamList& params, const Fp8LinearConfig& config,
                             std::vector<std::string>& tensors) {
  qkv_.use_fp8(params, config, tensors);
  proj_.use_fp8(params, config, tensors);
}

void AttentionLayer::cast_weights(LayerContext& ctx) const {
  qkv_.cast_weight(ctx);
  proj_.cast_weight(ctx);
}

void AttentionLayer::add_fp8_weights(std::vector<Fp8State::Weight>& weights) const {
  qkv_.add_fp8_weight(weights);
  proj_.add_fp8_weight(weights);
}

AttentionLayer::ForwardScratch AttentionLayer::forward_scratch(Arena& arena, int64_t N, int64_t tiles,
                                                               DType compute, const Saved& saved) const {
  const int64_t n = tp_.rows(N);
  ForwardScratch scratch;
  if (!is_norm_after_ && !saved.h) scratch.h = arena.alloc(compute, {n, C_});
  if (is_norm_after_ && !saved.post) scratch.post = arena.alloc(compute, {n, C_});
  scratch.h_all = alloc_all_rows(arena, compute, n, N, C_);
  scratch.tiles = arena.alloc(DType::f32, {tiles});
  scratch.out_all = alloc_all_rows(arena, compute, n, N, C_);
  if (norms_rows()) scratch.normed = arena.alloc(compute, {N * H_, D_});
  return scratch;
}

AttentionLayer::BackwardScratch AttentionLayer::backward_scratch(Arena& arena, int64_t N,
                                                                 DType compute) const {
  const int64_t n = tp_.rows(N);
  return {.dh = arena.alloc(compute, {n, C_}),
          .dh_all = alloc_all_rows(arena, compute, n, N, C_),
          .d_qkv = arena.alloc(compute, {N, qkv_width()})};
}

AttentionLayer::HeadsScratch AttentionLayer::heads_scratch(Arena& arena, const AttentionShape& shape,
                                                           DType compute) const {
  HeadsScratch scratch;
  scratch.d_out = arena.alloc(compute, {shape.B * shape.T, H_ * D_});
  scratch.tiles =
      arena.alloc(DType::f32, {attention_backward_scratch(shape, arena.device(), has_documents_)});
  if (has_gains_of_heads()) {
    scratch.gain_scratch = arena.alloc(DType::f32, {3 * row_sum_parts(arena.device()), D_});
    if (tp_.count > 1)
      for (Tensor& partial : scratch.partials) partial = arena.alloc(DType::f32, {D_});
  }
  if (!norms_rows()) return scratch;
  scratch.rows = arena.alloc(compute, {shape.B * shape.T * H_, D_});
  scratch.sums = alloc_sums(arena, H_ * D_);
  return scratch;
}

int64_t AttentionLayer::cached_tiles(int64_t T, const CacheShape& caches, Device device) const {
  const int64_t S = caches.positions;
  const auto slots = static_cast<uint64_t>(caches.slots);
  const auto most =
      static_cast<int64_t>(device == Device::kCuda ? std::bit_ceil(slots) : slots);  // with padding
  const int64_t singles = attention_decode_scratch({std::min(T, most), 1, S, H_, K_, D_}, device);
  if (T == 1) return singles;
  return std::max(singles, attention_forward_scratch({1, std::min(T, S), S, H_, K_, D_}, device));
}

void AttentionLayer::plan_forward(Arena& arena, int64_t B, int64_t T, DType compute, bool is_training,
                                  const CacheShape& caches) const {
  const ScratchScope scope(arena);
  const int64_t tiles =
      caches.slots > 0 ? cached_tiles(T, caches, arena.device())
                       : attention_forward_scratch({B, T, T, H_, K_, D_}, arena.device(), has_documents_);
  forward_scratch(arena, B * T, tiles, compute, {});
  qkv_.plan_forward(arena, B * T, compute, is_training);
  proj_.plan_forward(arena, B * T, compute, is_training);
}

void AttentionLayer::plan_backward(Arena& arena, int64_t B, int64_t T, DType compute) const {
  const ScratchScope scope(arena);
  backward_scratch(arena, B * T, compute);
  {
    const ScratchScope inner(arena);
    heads_scratch(arena, {B, T, T, H_, K_, D_}, compute);
    if (is_norm_after_) norm_.plan_backward(arena);
    proj_.plan_backward(arena, B * T);
  }
  qkv_.plan_backward(arena, B * T);
  if (!is_norm_after_) norm_.plan_backward(arena);
}

// The segments of one token go together; each of the others is a call of its own. On a device these take Ingot's kernel,
// because cuDNN makes a plan for every new length.
void AttentionLayer::attend_to_cache(LayerContext& ctx, const Tensor& out, const Tensor& lse, const Tensor& q,
                                     const CachedTokens& cached, const Tensor& tiles) const {
  const InferBatch& batch = cached.batch;
  const Tensor heads = out.split_last(H_, D_);  // (N, H, D)
  const auto rows_of = [](Tensor t, int64_t begin, int64_t end) {
    const Tensor rows = t.rows(begin, end);
    Tensor view(rows.data, rows.dtype, {1, end - begin, rows.dim(1), rows.dim(2)}, rows.device);
    view.strides = {rows.strides[0] * (end - begin), rows.strides[0], rows.strides[1], rows.strides[2]};
    return view;
  };
  const int64_t singles = batch.singles();
  const DecodeConfig decode{.scale = scale_, .window = window_};
  if (singles > 0)
    attention_decode(rows_of(heads, 0, singles), rows_of(q, 0, singles), cached.cache,
                     batch.places().rows(0, singles), batch.longest_single(), decode, tiles, ctx.stream);
  int64_t n = singles;
  for (const InferSegment& s : batch.segments()) {
    if (s.count == 1) continue;
    const int64_t S = s.first + s.count;
    const bool is_host = ctx.stream.device == Device::kCpu;
    const Tensor own_lse(lse.data, DType::f32, {1, H_, s.count}, lse.device);
    attention_forward(rows_of(heads, n, n + s.count), is_host ? own_lse : Tensor{},
                      rows_of(q, n, n + s.count), cached.cache.keys(s.slot, S),
                      cached.cache.values(s.slot, S), {}, config(ctx, s.count, {}), tiles, ctx.stream);
    n += s.count;
  }
  if (n < batch.rows()) fill_zero(out.rows(n, batch.rows()), ctx.stream);
}

ResidualStream AttentionLayer::forward(LayerContext& ctx, const Saved& saved, const ResidualStream& residual,
                                       const ResidualMemory& to, const DocumentMask& documents,
                                       const Tensor& rope_table, const CachedTokens* cached) const {
  const ScratchScope scope(ctx.scratch);
  const int64_t B = saved.lse.dim(0), T = saved.lse.dim(2), N = B * T;
  const Device device = ctx.stream.device;
  const int64_t tiles = cached ? cached_tiles(T, {cached->cache.slots(), cached->cache.positions()}, device)
                               : attention_forward_scratch({B, T, T, H_, K_, D_}, device, has_documents_);
  const ForwardScratch scratch = forward_scratch(ctx.scratch, N, tiles, saved.x.dtype, saved);
  const Tensor h = is_norm_after_ ? saved.x : qkv_.with_x_amax(ctx, saved.h ? saved.h : scratch.h);
  if (is_norm_after_)
    add_delta(ctx, saved.x, residual);
  else
    norm_.forward(ctx, h, saved.norm, saved.x, residual);
  const Tensor h_all = scratch.h_all ? scratch.h_all : h;
  ctx.region.enter(h_all, h, ctx.stream);
  qkv_.forward(ctx, saved.qkv, h_all, saved.h_codes);
  qkv_.add_bias(ctx, saved.qkv);

  const Heads heads = split(saved.qkv, B, T);
  rotate(ctx, saved, heads, is_rotary_ ? rope_table : Tensor{}, scratch.normed);
  if (cached) {
    append_to_cache(cached->cache, heads.k, heads.v, cached->batch.places(), ctx.stream);
    const Tensor q = saved.qkv.columns(0, H_ * D_).split_last(H_, D_);
    attend_to_cache(ctx, saved.out, saved.lse, q, *cached, scratch.tiles);
  } else {
    attention_forward(saved.out.reshape({B, T, H_, D_}), saved.lse, heads.q, heads.k, heads.v,
                      documents.starts, config(ctx, T, documents), scratch.tiles, ctx.stream);
  }
  const Tensor& out = to.delta;
  if (!out) return {};
  if (sums_in_product(ctx, to, proj_, is_norm_after_)) {
    proj_.forward(ctx, to.sum, saved.out, saved.out_codes, saved.x);
    proj_.add_bias(ctx, to.sum);
    return {to.sum, {}};
  }
  const Tensor sum = !is_norm_after_ ? out : saved.post ? saved.post : scratch.post;
  const Tensor partial = scratch.out_all ? scratch.out_all : sum;
  proj_.forward(ctx, partial, saved.out, saved.out_codes);
  ctx.region.leave(sum, partial, ctx.stream);
  proj_.add_bias(ctx, sum);
  if (is_norm_after_) norm_.forward(ctx, out, saved.norm, sum, {sum, {}});
  apply_dropout(ctx, out, dropout_site_, tp_.first_row(N));
  return {saved.x, out};
}

Tensor AttentionLayer::with_d_amax(const LayerContext& ctx, const Tensor& d) const {
  return is_norm_after_ || ctx.dropout.p > 0 ? d : proj_.with_dy_amax(ctx, d);
}

void AttentionLayer::backward(LayerContext& ctx, const Saved& saved, const Tensor& dx, const Tensor& d,
                              const DocumentMask& documents, const Tensor& rope_table) const {
  const ScratchScope scope(ctx.scratch);
  const int64_t B = saved.lse.dim(0), T = saved.lse.dim(2), N = B * T;
  const BackwardScratch scratch = backward_scratch(ctx.scratch, N, saved.x.dtype);
  const Tensor &dh = scratch.dh, &dh_all = scratch.dh_all ? scratch.dh_all : dh;
  // Its amax comes from the sums for the bias's gradient or else, without QK-norm, from the rotation and a pass over v's.
  const bool has_bias = qkv_.bias_id() >= 0, is_raised_here = !has_bias && is_rotary_ && !has_qk_norm_;
  Tensor d_qkv = is_raised_here ? qkv_.with_dy_amax(ctx, scratch.d_qkv) : scratch.d_qkv;
  {
    const ScratchScope inner(ctx.scratch);
    const HeadsScratch inside = heads_scratch(ctx.scratch, {B, T, T, H_, K_, D_}, saved.x.dtype);
    const Tensor& d_out = inside.d_out;
    Tensor d_sum = dropout_gradient(ctx, dh, d, dropout_site_, tp_.first_row(N));
    if (is_norm_after_) {
      const Tensor d_post = proj_.with_dy_amax(ctx, dh);
      norm_.backward(ctx, d_post, d_sum, saved.post, saved.norm, {});
      d_sum = d_post;
    }
    const Tensor d_all = d_sum.dim(0) == N ? d_sum : dh_all;
    ctx.region.leave_backward(d_all, d_sum, ctx.stream);
    proj_.backward(ctx, d_out, d_all, saved.out, saved.out_codes);
    proj_.backward_bias(ctx, d_sum.with_amax({}));
    const Heads heads = split(saved.qkv, B, T), dheads = split(d_qkv, B, T);
    attention_backward(dheads.q, dheads.k, dheads.v, d_out.reshape({B, T, H_, D_}), heads.q, heads.k, heads.v,
                       saved.out.reshape({B, T, H_, D_}), saved.lse, documents.starts,
                       config(ctx, T, documents), inside.tiles, ctx.stream);
    rotate_backward(ctx, saved, dheads, heads, is_rotary_ ? rope_table : Tensor{}, inside);
    if (d_qkv.amax) raise_amax(d_qkv.columns((H_ + K_) * D_, qkv_width()), ctx.stream);
  }
  const Tensor h = is_norm_after_ ? saved.x : saved.h ? saved.h : dh;
  if (!is_norm_after_ && !saved.h && !qkv_.has_codes(ctx, saved.h_codes))
    norm_.forward(ctx, h, NormStats{}, saved.x, {saved.x, {}});
  const Tensor h_all = h.dim(0) == N ? h : dh_all;
  ctx.region.enter(h_all, h, ctx.stream);
  if (has_bias) d_qkv = qkv_.with_dy_amax(ctx, d_qkv);
  qkv_.backward_bias(ctx, d_qkv);
  qkv_.backward(ctx, dh_all, d_qkv, h_all, saved.h_codes);
  ctx.region.enter_backward(dh, dh_all, ctx.stream);
  if (is_norm_after_)
    add_delta(ctx, dx, {d, dh});
  else
    norm_.backward(ctx, dx, dh, saved.x, saved.norm, d);
}

}  // namespace ingot
