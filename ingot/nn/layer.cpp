#include "ingot/nn/layer.h"

#include "ingot/core/copy.h"
#include "ingot/ops/accumulate.h"
#include "ingot/ops/bias.h"
#include "ingot/ops/dropout.h"
#include "ingot/ops/int8_matrix.h"
#include "ingot/ops/layernorm.h"
#include "ingot/ops/linear_fused.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/residual_add.h"
#include "ingot/ops/rmsnorm.h"
#include "ingot/ops/row_sum.h"

namespace ingot {

Tensor place_tensor(Arena& arena, Place place, DType dtype, const Shape& shape, const Tensor& shared) {
  if (place == Place::kOwn) return arena.alloc(dtype, shape);
  return place == Place::kShared ? shared : Tensor{};
}

Tensor alloc_all_rows(Arena& arena, DType dtype, int64_t n, int64_t N, int64_t C) {
  return n == N ? Tensor{} : arena.alloc(dtype, {N, C});
}

Tensor alloc_sums(Arena& arena, int64_t C) {
  return arena.alloc(DType::f32, {row_sum_parts(arena.device()), C});
}

WeightGradient weight_gradient(LayerContext& ctx, int id) {
  return {ctx.params.grad(id), !ctx.overwrites_gradients};
}

Tensor partial_gradient(LayerContext& ctx, int id, const Tensor& partial) {
  if (!partial) return ctx.params.grad(id);
  fill_zero(partial, ctx.stream);
  return partial;
}

void add_partial_gradient(LayerContext& ctx, int id, const Tensor& gradient) {
  if (id < 0) return;
  const Tensor grad = ctx.params.grad(id);
  if (grad.data == gradient.data) return;
  ctx.region.sum("partial gradient", gradient, ctx.stream);
  accumulate(grad, gradient, ctx.stream);
}

namespace {

// Returns this rank's slice of the outputs. Matrices with rows that neighbouring ranks share come last.
TensorSlice slice_of_outputs(const LinearSpec& spec, const TensorParallel& tp) {
  TensorSlice slice{.full = {spec.out, spec.in}};
  int64_t begin = 0;
  for (const int64_t part : spec.fused_rows.empty() ? std::vector<int64_t>{spec.out} : spec.fused_rows) {
    const int64_t count = tp.slice(part, spec.least_rows);
    slice.rows.push_back({.first = begin + tp.first(part, spec.least_rows), .count = count});
    begin += part;
    const int holders = tp.holders(part, spec.least_rows);
    INGOT_CHECK(holders > 1 || slice.common_rows == 0,
                "Linear: the rows of {} that ranks share are not its last", spec.prefix);
    if (holders == 1) continue;
    slice.common_rows += count;
    slice.has_copies = tp.rank % holders != 0;
  }
  INGOT_CHECK(begin == spec.out, "Linear: {} has {} rows, its parts {}", spec.prefix, spec.out, begin);
  return slice;
}

int64_t outputs_of(const TensorSlice& slice) {
  int64_t total = 0;
  for (const TensorSlice::Rows& rows : slice.rows) total += rows.count;
  return total;
}

}  // namespace

Linear::Linear(ParamList& params, const LinearSpec& spec, const TensorParallel& tp)
    : is_bias_activated_(spec.is_bias_activated),
      out_(spec.split == Split::kOutputs ? outputs_of(slice_of_outputs(spec, tp)) : spec.out),
      in_(spec.split == Split::kInputs ? tp.slice(spec.in) : spec.in),
      split_(spec.split),
      tp_(tp) {
  ParamSpec weight{.name = spec.prefix + ".weight",
                   .shape = {out_, in_},
                   .role = ParamRole::kMatrix,
                   .init = spec.init,
                   .init_std = spec.std,
                   .is_overwritten = true,
                   .fused_rows = spec.fused_rows,
                   .unit = spec.unit};
  ParamSpec bias{.name = spec.prefix + ".bias",
                 .shape = {out_},
                 .role = ParamRole::kBias,
                 .init = Init::kZero,
                 .unit = spec.unit};
  if (tp.count > 1 && split_ == Split::kOutputs) {
    weight.slice = bias.slice = slice_of_outputs(spec, tp);
    bias.slice.full = {spec.out};
  } else if (tp.count > 1) {
    weight.slice = {.full = {spec.out, spec.in},
                    .rows = {{.first = 0, .count = spec.out}},
                    .first_column = tp.first(spec.in)};
  }
  weight_ = params.add(std::move(weight));
  if (spec.has_bias) bias_ = params.add(std::move(bias));
}

void multiply_by_weight(LayerContext& ctx, const Tensor& y, const Tensor& x, int id) {
  if (const Int8Matrix* codes = ctx.params.int8_weight(id))
    return int8_matmul(y, x, *codes, ctx.params.int8_room(), ctx.stream);
  matmul(y, x, ctx.params.weight(id), MatmulForm::kNT, false, ctx.stream);
}

void Linear::forward(LayerContext& ctx, const Tensor& y, const Tensor& x, const Tensor& codes,
                     const Tensor& base) const {
  if (!adds_bias(ctx) && !is_fp8(ctx) && !base) return multiply_by_weight(ctx, y, x, weight_);
  const Tensor w = ctx.params.weight(weight_);
  const ScratchScope scope(ctx.scratch);
  LinearTerms terms{.base = base};
  if (adds_bias(ctx)) {
    terms.bias = ctx.params.weight(bias_);
    terms.rounded = fused_bias(ctx.scratch, y.dtype);
  }
  if (is_fp8(ctx)) return fp8_.forward(y, x, codes, w, terms, *ctx.fp8, ctx.scratch, ctx.region, ctx.stream);
  linear_sum(y, x, w, terms, ctx.stream);
}

void Linear::cast_weight(LayerContext& ctx) const {
  if (is_fp8(ctx) && ctx.fp8->held(fp8_.first_tensor + 1))
    fp8_.cast_weight(ctx.params.weight(weight_), *ctx.fp8, ctx.scratch, ctx.region, ctx.stream);
}

void Linear::add_fp8_weight(std::vector<Fp8State::Weight>& weights) const {
  if (fp8_.has_one_scale()) weights.push_back({fp8_.first_tensor + 1, {out_, in_}});
}

void Linear::add_bias(LayerContext& ctx, const Tensor& y) const {
  if (bias_ >= 0 && !adds_bias(ctx)) bias_forward(y, ctx.params.weight(bias_), ctx.stream);
}

void Linear::backward(LayerContext& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                      const Tensor& codes) const {
  const Tensor w = ctx.params.weight(weight_);
  if (is_fp8(ctx))
    return fp8_.backward(dx, weight_gradient(ctx, weight_), dy, x, codes, w, *ctx.fp8, ctx.scratch,
                         ctx.region, ctx.stream);
  backward_weight(ctx, dy, x, sums_bias(ctx));
  matmul(dx, dy, w, MatmulForm::kNN, false, ctx.stream);
}

// dw = dyᵀ · x, or +=, and, with has_bias, db += column sums of dy.
void Linear::backward_weight(LayerContext& ctx, const Tensor& dy, const Tensor& x, bool has_bias) const {
  const WeightGradient dw = weight_gradient(ctx, weight_);
  if (!has_bias) return matmul(dw.dw, dy, x, MatmulForm::kTN, dw.adds, ctx.stream);
  const ScratchScope scope(ctx.scratch);
  linear_weight_gradients(dw, ctx.params.grad(bias_), dy, x, bias_scratch(ctx.scratch).sums, ctx.stream);
}

void Linear::backward_bias(LayerContext& ctx, const Tensor& dy) const {
  if (bias_ < 0 || sums_bias(ctx)) return;
  const ScratchScope scope(ctx.scratch);
  const BiasScratch scratch = bias_scratch(ctx.scratch);
  const Tensor db = partial_gradient(ctx, bias_, scratch.partial);
  bias_backward(db, dy, scratch.sums, ctx.stream);
  add_partial_gradient(ctx, bias_, db);
}

void Linear::forward_gelu(LayerContext& ctx, const Tensor& act, const Tensor& pre, const Tensor& x) const {
  const ScratchScope scope(ctx.scratch);
  linear_gelu(act, pre, x, ctx.params.weight(weight_), ctx.params.weight(bias_),
              fused_bias(ctx.scratch, act.dtype), ctx.stream);
}

void Linear::backward_with_bias(LayerContext& ctx, const Tensor& dx, const Tensor& dy,
                                const Tensor& x) const {
  backward_weight(ctx, dy, x, true);
  matmul(dx, dy, ctx.params.weight(weight_), MatmulForm::kNN, false, ctx.stream);
}

void Linear::backward_gelu(LayerContext& ctx, const Tensor& d_pre, const Tensor& dy, const Tensor& x,
                           const Tensor& pre) const {
  backward_weight(ctx, dy, x, sums_bias(ctx));
  linear_gelu_backward(d_pre, dy, ctx.params.weight(weight_), pre, ctx.stream);
}

void Linear::use_fp8(const ParamList& params, const Fp8LinearConfig& config,
                     std::vector<std::string>& tensors) {
  const std::string& weight = params[weight_].name;
  const std::string name = weight.substr(0, weight.rfind('.'));
  const Shape& full = params[weight_].full_shape();
  if (!config.converts(name, full[0], full[1])) return;
  fp8_ = {.recipe = config.recipe,
          .first_tensor = static_cast<int>(tensors.size()),
          .splits_x = tp_.count > 1 && split_ == Split::kInputs,
          .splits_dy = tp_.count > 1 && split_ == Split::kOutputs};
  for (const char* tensor : {".x", ".w", ".dy"}) tensors.push_back(name + tensor);
}

Linear::BiasScratch Linear::bias_scratch(Arena& arena) const {
  BiasScratch scratch;
  if (split_ == Split::kInputs && tp_.has_partial_gradients())
    scratch.partial = arena.alloc(DType::f32, {out_});
  scratch.sums = alloc_sums(arena, out_);
  return scratch;
}

void Linear::plan_forward(Arena& arena, int64_t N, DType compute, bool is_training) const {
  const ScratchScope scope(arena);
  if (bias_ >= 0 && can_fuse(arena.device())) fused_bias(arena, compute);
  if (is_training) fp8_.plan_forward(arena, N, out_, in_);
}

void Linear::plan_backward(Arena& arena, int64_t N) const {
  fp8_.plan_backward(arena, N, out_, in_);
  if (bias_ < 0) return;
  const ScratchScope scope(arena);
  bias_scratch(arena);
}

bool sums_in_product(const LayerContext& ctx, const ResidualMemory& to, const Linear& last,
                     bool is_norm_after) {
  return to.sum && !is_norm_after && ctx.dropout.p == 0 && last.adds_base(ctx);
}

void add_delta(LayerContext& ctx, const Tensor& sum, const ResidualStream& residual) {
  const auto& [base, delta] = residual;
  INGOT_CHECK(delta || sum.data == base.data, "add_delta: without a delta the sum is the base");
  if (delta) residual_add(sum, base, delta, ctx.stream);
}

Norm::Norm(ParamList& params, int unit, const std::string& prefix, const ModelConfig& config,
           const TensorParallel& tp)
    : kind_(config.norm),
      C_(config.width),
      eps_(static_cast<float>(config.norm_eps)),
      has_partial_gradients_(tp.has_partial_gradients()) {
  if (kind_ == NormKind::kRmsNormWeightless) return;
  weight_ = params.add({.name = prefix + ".weight",
                        .shape = {config.width},
                        .role = ParamRole::kNorm,
                        .init = Init::kOne,
                        .unit = unit});
  if (kind_ == NormKind::kLayerNorm && config.has_bias)
    bias_ = params.add({.name = prefix + ".bias",
                        .shape = {config.width},
                        .role = ParamRole::kBias,
                        .init = Init::kZero,
                        .unit = unit});
}

NormStats Norm::make_stats(Arena& arena, int64_t n) const {
  NormStats stats;
  if (kind_ == NormKind::kLayerNorm) stats.mean = arena.alloc(DType::f32, {n});
  stats.rstd = arena.alloc(DType::f32, {n});
  return stats;
}

void Norm::forward(LayerContext& ctx, const Tensor& h, const NormStats& stats, const Tensor& sum,
                   const ResidualStream& residual) const {
  const auto& [base, delta] = residual;
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
  const BackwardScratch scratch = backward_scratch(ctx.scratch);
  const Tensor w = ctx.params.weight(weight_);
  const Tensor dw = partial_gradient(ctx, weight_, scratch.dw);
  const Tensor db = partial_gradient(ctx, bias_, scratch.db);
  if (kind_ == NormKind::kLayerNorm)
    layernorm_backward(d, dw, db, dh, x, w, stats.mean, stats.rstd, d_residual, scratch.sums, ctx.stream);
  else
    rmsnorm_backward(d, dw, dh, x, w, stats.rstd, d_residual, scratch.sums, ctx.stream);
  add_partial_gradient(ctx, weight_, dw);
  add_partial_gradient(ctx, bias_, db);
}

Norm::BackwardScratch Norm::backward_scratch(Arena& arena) const {
  BackwardScratch scratch;
  if (has_partial_gradients_ && weight_ >= 0) scratch.dw = arena.alloc(DType::f32, {C_});
  if (has_partial_gradients_ && bias_ >= 0) scratch.db = arena.alloc(DType::f32, {C_});
  scratch.sums = alloc_sums(arena, kind_ == NormKind::kLayerNorm ? 2 * C_ : C_);
  return scratch;
}

void Norm::plan_backward(Arena& arena) const {
  const ScratchScope scope(arena);
  backward_scratch(arena);
}

RandomKey dropout_key(const DropoutState& state, uint32_t site) {
  return {.seed = state.seed, .purpose = Purpose::kDropout, .stream = site, .step = state.step};
}

namespace {

uint64_t first_element(const DropoutState& state, const Tensor& t, int64_t first_row) {
  return static_cast<uint64_t>((state.first_row + first_row) * t.dim(1));
}

}  // namespace

void apply_dropout(LayerContext& ctx, const Tensor& y, uint32_t site, int64_t first_row) {
  if (ctx.dropout.p == 0) return;
  dropout(y, y, ctx.dropout.p, dropout_key(ctx.dropout, site), first_element(ctx.dropout, y, first_row),
          ctx.stream, ctx.dropout.place);
}

Tensor dropout_gradient(LayerContext& ctx, const Tensor& buffer, const Tensor& d, uint32_t site,
                        int64_t first_row) {
  if (ctx.dropout.p == 0) return d;
  dropout(buffer, d, ctx.dropout.p, dropout_key(ctx.dropout, site), first_element(ctx.dropout, d, first_row),
          ctx.stream, ctx.dropout.place);
  return buffer;
}

}  // namespace ingot
