#include "ingot/nn/layer.h"

#include "ingot/core/parallel.h"
#include "ingot/ops/bias.h"
#include "ingot/ops/dropout.h"
#include "ingot/ops/layernorm.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/rmsnorm.h"

namespace ingot {

Tensor place_tensor(Arena& arena, Place place, DType dtype, const Shape& shape, const Tensor& shared) {
  if (place == Place::kOwn) return arena.alloc(dtype, shape);
  return place == Place::kShared ? shared : Tensor{};
}

Linear::Linear(ParamList& params, int unit, const std::string& prefix, int64_t out, int64_t in, Init init,
               double std, bool has_bias)
    : out_(out), in_(in) {
  weight_ = params.add({.name = prefix + ".weight",
                        .shape = {out, in},
                        .role = Role::kMatrix,
                        .init = init,
                        .init_std = std,
                        .unit = unit});
  if (has_bias)
    bias_ = params.add(
        {.name = prefix + ".bias", .shape = {out}, .role = Role::kBias, .init = Init::kZero, .unit = unit});
}

void Linear::forward(LayerContext& ctx, const Tensor& y, const Tensor& x, bool adds_bias) const {
  const ScratchScope scope(ctx.scratch);
  const Tensor w = ctx.params.weight(weight_);
  if (is_fp8(ctx))
    fp8_.forward(y, x, w, *ctx.fp8, ctx.scratch, ctx.stream);
  else
    matmul(y, x, w, MatmulForm::kNT, false, ctx.stream);
  if (adds_bias && bias_ >= 0) bias_forward(y, ctx.params.weight(bias_), ctx.stream);
}

void Linear::backward_weight(LayerContext& ctx, const Tensor& dy, const Tensor& x, bool adds_bias) const {
  const Tensor dw = ctx.params.grad(weight_);
  if (is_fp8(ctx)) {
    const ScratchScope scope(ctx.scratch);
    fp8_.backward_weight(dw, dy, x, *ctx.fp8, ctx.scratch, ctx.stream);
  } else {
    matmul(dw, dy, x, MatmulForm::kTN, true, ctx.stream);
  }
  if (!adds_bias || bias_ < 0) return;
  const ScratchScope scope(ctx.scratch);
  bias_backward(ctx.params.grad(bias_), dy, ctx.scratch.alloc(DType::f32, {num_threads(), dy.dim(1)}),
                ctx.stream);
}

void Linear::backward_input(LayerContext& ctx, const Tensor& dx, const Tensor& dy) const {
  const ScratchScope scope(ctx.scratch);
  const Tensor w = ctx.params.weight(weight_);
  if (is_fp8(ctx))
    fp8_.backward_input(dx, dy, w, *ctx.fp8, ctx.scratch, ctx.stream);
  else
    matmul(dx, dy, w, MatmulForm::kNN, false, ctx.stream);
}

void Linear::use_fp8(const ParamList& params, const Fp8LinearConfig& config,
                     std::vector<std::string>& tensors) {
  const std::string& weight = params[weight_].name;
  const std::string name = weight.substr(0, weight.rfind('.'));
  if (!config.converts(name, out_, in_)) return;
  fp8_ = {.recipe = config.recipe, .first_tensor = static_cast<int>(tensors.size())};
  for (const char* tensor : {".x", ".w", ".dy"}) tensors.push_back(name + tensor);
}

void Linear::plan(Arena& arena, int64_t N) const {
  if (fp8_.recipe != Fp8Recipe::kNone) Fp8Linear::plan(arena, N, out_, in_);
}

Norm::Norm(ParamList& params, int unit, const std::string& prefix, const ModelConfig& config)
    : kind_(config.norm), eps_(static_cast<float>(config.norm_eps)) {
  if (kind_ == NormKind::kRmsNormWeightless) return;
  weight_ = params.add({.name = prefix + ".weight",
                        .shape = {config.width},
                        .role = Role::kNorm,
                        .init = Init::kOne,
                        .unit = unit});
  if (kind_ == NormKind::kLayerNorm && config.has_bias)
    bias_ = params.add({.name = prefix + ".bias",
                        .shape = {config.width},
                        .role = Role::kBias,
                        .init = Init::kZero,
                        .unit = unit});
}

NormStats Norm::make_stats(Arena& arena, int64_t N) const {
  NormStats stats;
  if (kind_ == NormKind::kLayerNorm) stats.mean = arena.alloc(DType::f32, {N});
  stats.rstd = arena.alloc(DType::f32, {N});
  return stats;
}

void Norm::forward(LayerContext& ctx, const Tensor& h, const NormStats& stats, const Tensor& sum,
                   const Tensor& base, const Tensor& delta) const {
  INGOT_CHECK(delta || sum.data == base.data, "Norm::forward: without a delta the sum is the base");
  const Tensor w = ctx.params.weight(weight_);
  if (kind_ == NormKind::kLayerNorm) {
    const Tensor b = ctx.params.weight(bias_);
    if (delta)
      residual_layernorm_forward(h, sum, stats.mean, stats.rstd, base, delta, w, b, eps_, ctx.stream);
    else
      layernorm_forward(h, stats.mean, stats.rstd, base, w, b, eps_, ctx.stream);
  } else if (delta) {
    residual_rmsnorm_forward(h, sum, stats.rstd, base, delta, w, eps_, ctx.stream);
  } else {
    rmsnorm_forward(h, stats.rstd, base, w, eps_, ctx.stream);
  }
}

void Norm::backward(LayerContext& ctx, const Tensor& d, const Tensor& dh, const Tensor& x,
                    const NormStats& stats, const Tensor& d_residual) const {
  const ScratchScope scope(ctx.scratch);
  const Tensor w = ctx.params.weight(weight_), dw = ctx.params.grad(weight_);
  if (kind_ == NormKind::kLayerNorm)
    layernorm_backward(d, dw, ctx.params.grad(bias_), dh, x, w, stats.mean, stats.rstd, d_residual,
                       ctx.scratch.alloc(DType::f32, {2, num_threads(), x.dim(1)}), ctx.stream);
  else
    rmsnorm_backward(d, dw, dh, x, w, stats.rstd, d_residual,
                     ctx.scratch.alloc(DType::f32, {num_threads(), x.dim(1)}), ctx.stream);
}

RandomKey dropout_key(const DropoutState& state, uint32_t site) {
  return {.seed = state.seed, .purpose = Purpose::kDropout, .stream = site, .step = state.step};
}

namespace {

uint64_t first_element(const DropoutState& state, const Tensor& t) {
  return static_cast<uint64_t>(state.first_row * t.dim(1));
}

}  // namespace

void apply_dropout(LayerContext& ctx, const Tensor& y, uint32_t site) {
  if (ctx.dropout.p == 0) return;
  dropout(y, y, ctx.dropout.p, dropout_key(ctx.dropout, site), first_element(ctx.dropout, y), ctx.stream);
}

Tensor dropout_gradient(LayerContext& ctx, const Tensor& buffer, const Tensor& d, uint32_t site) {
  if (ctx.dropout.p == 0) return d;
  dropout(buffer, d, ctx.dropout.p, dropout_key(ctx.dropout, site), first_element(ctx.dropout, d),
          ctx.stream);
  return buffer;
}

}  // namespace ingot
