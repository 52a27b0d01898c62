#include "ingot/nn/mlp_layer.h"

#include <cmath>

#include "ingot/ops/activation.h"

namespace ingot {
namespace {

Activation activation_of(MlpKind kind) {
  switch (kind) {
    case MlpKind::kGeluExact:
      return Activation::kGeluExact;
    case MlpKind::kRelu2:
      return Activation::kRelu2;
    default:
      return Activation::kGeluTanh;
  }
}

}  // namespace

MlpLayer::MlpLayer(ParamList& params, int unit, const std::string& prefix, const ModelConfig& config,
                   const TensorParallel& tp, int index)
    : tp_(tp),
      kind_(config.mlp),
      is_norm_after_(config.norm_place == NormPlace::kAfter),
      C_(config.width),
      F_(tp.slice(config.ffn)),
      dropout_site_(static_cast<uint32_t>(2 * index + 2)),
      norm_(params, unit, prefix + "mlp.norm", config, tp) {
  const bool is_zero = config.projection_init == ProjectionInit::kZero;
  const double scaled = config.projection_init == ProjectionInit::kScaled
                            ? config.matrix_std() / std::sqrt(2.0 * static_cast<double>(config.layers))
                            : config.matrix_std();
  LinearSpec up{.unit = unit,
                .prefix = prefix + "mlp.up",
                .out = config.mlp_in_width(),
                .in = C_,
                .split = Split::kOutputs,
                .std = config.matrix_std(),
                .has_bias = config.has_bias,
                .is_bias_activated = !is_swiglu()};
  if (is_swiglu()) up.fused_rows = {config.ffn, config.ffn};
  up_ = Linear(params, up, tp);
  down_ = Linear(params,
                 {.unit = unit,
                  .prefix = prefix + "mlp.down",
                  .out = C_,
                  .in = config.ffn,
                  .split = Split::kInputs,
                  .init = is_zero ? Init::kZero : Init::kNormal,
                  .std = scaled,
                  .has_bias = config.has_bias},
                 tp);
}

MlpLayer::Saved MlpLayer::make_saved(Arena& arena, int64_t N, DType compute, const MlpPlaces& places,
                                     const Saved& shared) const {
  const int64_t n = tp_.rows(N);
  Saved saved{.x = place_tensor(arena, places.x, compute, {n, C_}, shared.x),
              .norm = {},
              .h = {},
              .pre = {},
              .act = {},
              .post = {}};
  if (!is_norm_after_) saved.h = place_tensor(arena, places.h, compute, {n, C_}, shared.h);
  saved.pre = place_tensor(arena, places.pre, compute, {N, in_width()}, shared.pre);
  saved.act = place_tensor(arena, places.act, compute, {N, F_}, shared.act);
  if (is_norm_after_) saved.post = place_tensor(arena, places.post, compute, {n, C_}, shared.post);
  if (!places.has_codes) return saved;
  saved.h_codes = up_.make_codes(arena, N);
  saved.act_codes = down_.make_codes(arena, N);
  return saved;
}

void MlpLayer::use_fp8(const ParamList& params, const Fp8LinearConfig& config,
                       std::vector<std::string>& tensors) {
  up_.use_fp8(params, config, tensors);
  down_.use_fp8(params, config, tensors);
}

void MlpLayer::cast_weights(LayerContext& ctx) const {
  up_.cast_weight(ctx);
  down_.cast_weight(ctx);
}

void MlpLayer::add_fp8_weights(std::vector<Fp8State::Weight>& weights) const {
  up_.add_fp8_weight(weights);
  down_.add_fp8_weight(weights);
}

MlpLayer::ForwardScratch MlpLayer::forward_scratch(Arena& arena, int64_t N, DType compute,
                                                   const Saved& saved) const {
  const int64_t n = tp_.rows(N);
  ForwardScratch scratch;
  if (!is_norm_after_ && !saved.h) scratch.h = arena.alloc(compute, {n, C_});
  if (is_norm_after_ && !saved.post) scratch.post = arena.alloc(compute, {n, C_});
  scratch.h_all = alloc_all_rows(arena, compute, n, N, C_);
  if (!saved.act) scratch.act = arena.alloc(compute, {N, F_});
  scratch.out_all = alloc_all_rows(arena, compute, n, N, C_);
  return scratch;
}

MlpLayer::BackwardScratch MlpLayer::backward_scratch(Arena& arena, int64_t N, DType compute) const {
  const int64_t n = tp_.rows(N);
  return {.dh = arena.alloc(compute, {n, C_}),
          .dh_all = alloc_all_rows(arena, compute, n, N, C_),
          .d_act = arena.alloc(compute, {N, F_}),
          .d_pre = arena.alloc(compute, {N, in_width()})};
}

void MlpLayer::plan_forward(Arena& arena, int64_t N, DType compute, bool is_training) const {
  const ScratchScope scope(arena);
  forward_scratch(arena, N, compute, {});
  up_.plan_forward(arena, N, compute, is_training);
  down_.plan_forward(arena, N, compute, is_training);
}

void MlpLayer::plan_backward(Arena& arena, int64_t N, DType compute) const {
  const ScratchScope scope(arena);
  backward_scratch(arena, N, compute);
  if (!is_swiglu()) {
    const ScratchScope inner(arena);
    activation_sums(arena);
  }
  up_.plan_backward(arena, N);
  down_.plan_backward(arena, N);
  norm_.plan_backward(arena);
}

void MlpLayer::activate(LayerContext& ctx, const Tensor& act, const Tensor& pre) const {
  if (is_swiglu())
    swiglu_forward(act, pre, ctx.stream);
  else
    activation_forward(act, pre, is_fused(ctx) ? Tensor{} : ctx.params.weight(up_.bias_id()),
                       activation_of(kind_), ctx.stream);
}

Tensor MlpLayer::with_d_amax(const LayerContext& ctx, const Tensor& d) const {
  return is_norm_after_ || ctx.dropout.p > 0 ? d : down_.with_dy_amax(ctx, d);
}

ResidualStream MlpLayer::forward(LayerContext& ctx, const Saved& saved, const ResidualStream& residual,
                                 const ResidualMemory& to) const {
  const ScratchScope scope(ctx.scratch);
  const int64_t N = saved.pre.dim(0);
  const ForwardScratch scratch = forward_scratch(ctx.scratch, N, saved.x.dtype, saved);
  const Tensor h = is_norm_after_ ? saved.x : up_.with_x_amax(ctx, saved.h ? saved.h : scratch.h);
  if (is_norm_after_)
    add_delta(ctx, saved.x, residual);
  else
    norm_.forward(ctx, h, saved.norm, saved.x, residual);
  const Tensor h_all = scratch.h_all ? scratch.h_all : h;
  ctx.region.enter(h_all, h, ctx.stream);
  if (!is_fused(ctx)) up_.forward(ctx, saved.pre, h_all, saved.h_codes);
  if (is_swiglu()) up_.add_bias(ctx, saved.pre);
  const Tensor& out = to.delta;
  if (!out && !saved.act && !is_fused(ctx)) return {};
  Tensor act = saved.act ? saved.act : scratch.act;
  if (out) act = down_.with_x_amax(ctx, act);
  if (is_fused(ctx))
    up_.forward_gelu(ctx, act, saved.pre, h_all);
  else
    activate(ctx, act, saved.pre);
  if (!out) return {};
  if (sums_in_product(ctx, to, down_, is_norm_after_)) {
    down_.forward(ctx, to.sum, act, saved.act_codes, saved.x);
    down_.add_bias(ctx, to.sum);
    return {to.sum, {}};
  }
  const Tensor sum = !is_norm_after_ ? out : saved.post ? saved.post : scratch.post;
  const Tensor partial = scratch.out_all ? scratch.out_all : sum;
  down_.forward(ctx, partial, act, saved.act_codes);
  ctx.region.leave(sum, partial, ctx.stream);
  down_.add_bias(ctx, sum);
  if (is_norm_after_) norm_.forward(ctx, out, saved.norm, sum, {sum, {}});
  apply_dropout(ctx, out, dropout_site_, tp_.first_row(N));
  return {saved.x, out};
}

// Computes d_pre from d, the gradient of W_down's output, and accumulates the gradient of W_down. d_act is
// scratch, in which act may lie.
void MlpLayer::backward_activated(LayerContext& ctx, const Tensor& d_pre, const Tensor& d_act,
                                  const Tensor& d, const Tensor& act, const Saved& saved) const {
  const Tensor& pre = saved.pre;
  if (is_fused(ctx)) return down_.backward_gelu(ctx, d_pre, d, act, pre);
  down_.backward(ctx, d_act, d, act, saved.act_codes);
  if (is_swiglu()) return swiglu_backward(d_pre, d_act, pre, ctx.stream);
  const ScratchScope scope(ctx.scratch);
  activation_backward(d_pre, ctx.params.grad(up_.bias_id()), d_act, pre, ctx.params.weight(up_.bias_id()),
                      activation_of(kind_), activation_sums(ctx.scratch), ctx.stream);
}

void MlpLayer::backward(LayerContext& ctx, const Saved& saved, const Tensor& dx, const Tensor& d) const {
  const ScratchScope scope(ctx.scratch);
  const int64_t N = saved.pre.dim(0);
  const BackwardScratch scratch = backward_scratch(ctx.scratch, N, saved.x.dtype);
  const Tensor &dh = scratch.dh, &dh_all = scratch.dh_all ? scratch.dh_all : dh;
  const Tensor& d_act = scratch.d_act;
  const Tensor d_pre = up_.with_dy_amax(ctx, scratch.d_pre);
  Tensor d_sum = dropout_gradient(ctx, dh, d, dropout_site_, tp_.first_row(N));
  if (is_norm_after_) {
    const Tensor d_post = down_.with_dy_amax(ctx, dh);
    norm_.backward(ctx, d_post, d_sum, saved.post, saved.norm, {});
    d_sum = d_post;
  }
  const Tensor d_all = d_sum.dim(0) == N ? d_sum : dh_all;
  ctx.region.leave_backward(d_all, d_sum, ctx.stream);
  const Tensor act = saved.act ? saved.act : d_act;
  if (!saved.act && !down_.has_codes(ctx, saved.act_codes)) activate(ctx, act, saved.pre);
  backward_activated(ctx, d_pre, d_act, d_all, act, saved);
  down_.backward_bias(ctx, d_sum.with_amax({}));
  const Tensor h = is_norm_after_ ? saved.x : saved.h ? saved.h : dh;
  if (!is_norm_after_ && !saved.h && !up_.has_codes(ctx, saved.h_codes))
    norm_.forward(ctx, h, NormStats{}, saved.x, {saved.x, {}});
  const Tensor h_all = h.dim(0) == N ? h : dh_all;
  ctx.region.enter(h_all, h, ctx.stream);
  if (is_fused(ctx))
    up_.backward_with_bias(ctx, dh_all, d_pre, h_all);
  else
    up_.backward(ctx, dh_all, d_pre, h_all, saved.h_codes);
  if (is_swiglu()) up_.backward_bias(ctx, scratch.d_pre);
  ctx.region.enter_backward(dh, dh_all, ctx.stream);
  if (is_norm_after_)
    add_delta(ctx, dx, {d, dh});
  else
    norm_.backward(ctx, dx, dh, saved.x, saved.norm, d);
}

}  // namespace ingot
