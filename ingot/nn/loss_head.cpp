#include "ingot/nn/loss_head.h"

#include <algorithm>

#include "ingot/core/copy.h"
#include "ingot/nn/custom_loss.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/preference_loss.h"
#include "ingot/ops/tf32.h"

namespace ingot {
namespace {

constexpr int64_t kChunkBytes = int64_t{76} << 20;  // limit for the f32 logits of one chunk
// For 16-bit products: the limit for the gradients of one chunk's logits, and how many f32 logits exist at
// a time. If exponentials are kept, these are kLogitColumns columns for all tokens of the chunk; otherwise
// kLogitTokens tokens with all columns.
constexpr int64_t kGradientBytes = int64_t{100} << 20, kLogitColumns = 1024, kLogitTokens = 128;
constexpr int64_t kLeastTokens = 128;  // smallest chunk; with fewer tokens the products become slow
constexpr int64_t kCheckRows = 1024;   // rows of bf16 weights that the check widens at a time
constexpr int64_t kTileTokens = 512;   // tokens of a recomputed tile
// The same for a GPU, whose products need many tokens: limit for the logits of one chunk, and (below)
// the size of a recomputed tile. Every chunk reads and writes the f32 gradient of the weight, so chunks are
// few; and they are multiples of the largest tile of a product, so that its last row of tiles is a whole one.
// 8-bit products need a multiple of 16 tokens.
constexpr int64_t kDeviceChunkBytes = int64_t{2} << 30;
constexpr int64_t kDeviceGranule = 256;
constexpr int64_t kDeviceTileTokens = 4096, kDeviceTileColumns = 16384;

CrossEntropyConfig loss_config(const ModelConfig& model, const HeadConfig& head) {
  CrossEntropyConfig loss{.vocab = model.vocab};
  loss.cap = model.cap.kind;
  loss.cap_a = static_cast<float>(model.cap.a);
  loss.cap_b = static_cast<float>(model.cap.b);
  loss.cap_c = static_cast<float>(model.cap.c);
  loss.label_smoothing = static_cast<float>(head.label_smoothing);
  loss.z_loss = static_cast<float>(head.z_loss);
  return loss;
}

void require(bool holds, const char* key, const char* rule, double value) {
  if (!holds) fail(ErrorKind::kUsage, "head.{} must {}, got {}", key, rule, value);
}

DType product_dtype(HeadPrecision precision) {
  return precision == HeadPrecision::kF32   ? DType::f32
         : precision == HeadPrecision::kF16 ? DType::f16
                                            : DType::bf16;
}

HeadPrecision resolved(HeadPrecision precision, DType compute) {
  if (precision != HeadPrecision::kCompute) return precision;
  return compute == DType::f32   ? HeadPrecision::kF32
         : compute == DType::f16 ? HeadPrecision::kF16
                                 : HeadPrecision::kBf16;
}

}  // namespace

void HeadConfig::validate() const {
  require(z_loss >= 0, "z_loss", "not be negative (0 is off)", z_loss);
  require(label_smoothing >= 0 && label_smoothing < 1, "label_smoothing", "lie in [0, 1)", label_smoothing);
  require(filter >= 0 && filter < 1, "filter", "lie in [0, 1)", filter);
  require(filter == 0 || kind == HeadKind::kRecompute, "filter", "be 0 unless head.kind = \"recompute\"",
          filter);
  if (loss_dtype != LossDtype::kF32 && kind == HeadKind::kRecompute)
    fail(ErrorKind::kUsage, "head.loss_dtype must be f32 with head.kind = \"recompute\"");
  if (loss_dtype == LossDtype::kBf16 && (z_loss > 0 || label_smoothing > 0))
    fail(ErrorKind::kUsage,
         "head.loss_dtype = \"bf16\" knows no z_loss and no label_smoothing; set both to 0");
  if (!(dpo_beta >= 0 && dpo_beta <= 1000))
    fail(ErrorKind::kUsage, "dpo.beta must lie in [0, 1000] (0 is off), got {}", dpo_beta);
  require(fp8_x_scale > 0, "fp8_x_scale", "be above 0", fp8_x_scale);
  require(fp8_w_scale > 0, "fp8_w_scale", "be above 0", fp8_w_scale);
  require(raw_ce_limit > 0, "raw_ce_limit", "be above 0", raw_ce_limit);
  require(raw_ce_bias_limit >= 0, "raw_ce_bias_limit", "not be negative (0 derives it from the formats)",
          raw_ce_bias_limit);
}

LossHead::LossHead(const ModelConfig& model, const HeadConfig& config, DType compute, int weight,
                   const TensorParallel& tp)
    : config_(config),
      loss_(loss_config(model, config)),
      compute_(compute),
      tp_(tp),
      C_(model.width),
      Vp_(tp.slice(model.vocab_padded())),
      weight_(weight) {}

int64_t LossHead::chunk(int64_t N, Device device, bool is_training) const {
  if (config_.kind == HeadKind::kDense) return N;
  if (config_.kind == HeadKind::kRecompute)
    return std::min(N, device == Device::kCuda ? kDeviceTileTokens : kTileTokens);
  const HeadPrecision precision = resolved(config_.precision, compute_);
  const bool is_half = precision == HeadPrecision::kBf16 || precision == HeadPrecision::kF16;
  const int64_t device_logit_bytes = is_training && config_.loss_dtype == LossDtype::kBf16Logits ? 2 : 4;
  const int64_t fitting = device == Device::kCuda ? kDeviceChunkBytes / (Vp_ * device_logit_bytes)
                          : is_half               ? kGradientBytes / (Vp_ * 2)
                                                  : kChunkBytes / (Vp_ * 4);
  const int64_t granule = device == Device::kCuda ? kDeviceGranule : 1;
  const int64_t chunk =
      std::clamp<int64_t>(fitting / granule * granule, std::min(std::max(kLeastTokens, granule), N), N);
  const int64_t chunks = (N + chunk - 1) / chunk, even = (N + chunks - 1) / chunks;
  return std::min(N, (even + granule - 1) / granule * granule);
}

LinearCrossEntropyConfig LossHead::op_config(int64_t N, float grad_scale, Device device) const {
  const bool is_training = grad_scale != 0;
  LinearCrossEntropyConfig op{.loss = loss_, .kind = config_.kind};
  op.device = device;
  op.loss.grad_scale = grad_scale;
  if (!is_training) op.loss.label_smoothing = op.loss.z_loss = 0;
  const bool is_fp8 = config_.precision == HeadPrecision::kFp8;
  op.precision = resolved(is_fp8 && !is_training ? HeadPrecision::kBf16 : config_.precision, compute_);
  op.accumulation = config_.accumulation;
  if (is_training) op.loss_dtype = config_.loss_dtype;
  op.chunk_tokens = chunk(N, device, is_training);
  op.logit_tokens = device == Device::kCuda ? op.chunk_tokens : kLogitTokens * tp_.count;
  if (device == Device::kCuda) op.tile_columns = kDeviceTileColumns;
  op.filter = static_cast<float>(config_.filter);
  op.fp8_scaling = config_.fp8_scaling;
  op.fp8_x_scale = static_cast<float>(config_.fp8_x_scale);
  op.fp8_w_scale = static_cast<float>(config_.fp8_w_scale);
  op.columns.count = tp_.count;
  if (keeps_exponentials(op)) op.tile_columns = kLogitColumns;
  return op;
}

ColumnShard LossHead::columns(LayerContext& ctx) const {
  return {.first = tp_.rank * Vp_,
          .count = tp_.count,
          .gather = [&ctx](const Tensor& all,
                           const Tensor& own) { ctx.region.gather("head", all, own, ctx.stream); },
          .max = [&ctx](const Tensor& t) { ctx.region.max("head amax", t, ctx.stream); }};
}

LossHead::Layout LossHead::layout(Arena& arena, int64_t N, const LinearCrossEntropyConfig& op,
                                  bool has_grads) const {
  const DType dtype = product_dtype(op.precision);
  Layout l;
  if (op.precision != HeadPrecision::kFp8 && dtype != compute_) {
    l.x = arena.alloc(dtype, {N, C_});
    if (dtype != DType::f32) l.w = arena.alloc(dtype, {Vp_, C_});
    if (compute_ != DType::f32 && has_grads) l.dx = arena.alloc(DType::f32, {N, C_});
  }
  if (has_pairs()) l.token_losses = arena.alloc(DType::f32, {N});
  if (has_pairs() && has_grads) l.row_weights = arena.alloc(DType::f32, {N});
  l.scratch = make_linear_cross_entropy_scratch(arena, N, C_, Vp_, op, has_grads);
  return l;
}

LossHead::CheckLayout LossHead::check_layout(Arena& arena, int64_t tokens) const {
  CheckLayout l;
  l.x = arena.alloc(DType::f32, {tokens, C_});
  l.logits = arena.alloc(DType::f32, {tokens, Vp_});
  l.targets = arena.alloc(DType::i32, {tokens});
  l.losses = arena.alloc(DType::f32, {tokens});
  l.trained = arena.alloc(DType::f32, {tokens});
  if (compute_ != DType::f32) l.w_part = arena.alloc(DType::f32, {std::min(Vp_, kCheckRows), C_});
  if (tp_.count > 1) l.tp = make_column_shard_scratch(arena, tokens, tp_.count);
  return l;
}

void LossHead::plan(Arena& arena, int64_t N, bool has_grads) const {
  const ScratchScope scope(arena);
  layout(arena, N, op_config(N, has_grads ? 1 : 0, arena.device()), has_grads);
}

void LossHead::plan_check(Arena& arena, int64_t N) const {
  const ScratchScope scope(arena);
  if (config_.raw_ce_every > 0) check_layout(arena, std::min(N, config_.raw_ce_tokens));
}

LinearCrossEntropyReport LossHead::forward(LayerContext& ctx, const Out& out, const Tensor& x,
                                           const MicroBatch& batch, float grad_scale) const {
  const Span span(ctx.stream.trace, "head");
  const ScratchScope scope(ctx.scratch);
  const bool has_grads = grad_scale != 0;
  LinearCrossEntropyConfig op = op_config(x.dim(0), grad_scale, ctx.scratch.device());
  op.columns = columns(ctx);
  Layout l = layout(ctx.scratch, x.dim(0), op, has_grads);
  const bool is_fp8 = op.precision == HeadPrecision::kFp8;
  if (Fp8Device* device = is_fp8 && ctx.fp8 ? ctx.fp8->device() : nullptr)
    for (int i = 0; i < 3; ++i) l.scratch.fp8[static_cast<size_t>(i)] = device->place(first_counter_ + i);
  const Tensor targets = batch.targets.reshape({x.dim(0)});
  LinearCrossEntropyIn in{.x = l.x ? l.x : x, .w = l.w, .targets = targets};
  if (l.x) cast(l.x, x, ctx.stream);
  if (l.w)
    cast(l.w, ctx.params.best_weight(weight_), ctx.stream);
  else
    in.w = product_dtype(op.precision) == compute_ && !is_fp8 ? ctx.params.weight(weight_)
                                                              : ctx.params.best_weight(weight_);
  LinearCrossEntropyOut result{.losses = out.losses, .is_correct = out.is_correct, .dx = {}, .dw = {}};
  if (has_pairs() && batch.reference) {
    if (ctx.loss) fail(ErrorKind::kUsage, "a loss of your own cannot be that of pairs; leave out dpo.beta");
    result = {.losses = l.token_losses, .is_correct = {}, .dx = {}, .dw = {}};
    linear_cross_entropy(result, in, op, l.scratch, ctx.stream);
    preference_loss({.losses = out.losses,
                     .is_correct = out.is_correct,
                     .counted = out.counted,
                     .rewards = out.rewards,
                     .weights = l.row_weights},
                    {.losses = l.token_losses,
                     .targets = batch.targets,
                     .doc_start = batch.doc_start,
                     .reference = batch.reference},
                    static_cast<float>(config_.dpo_beta), ctx.stream);
    if (!has_grads) return {};
    in.row_weights = l.row_weights;
  } else if (has_pairs()) {
    copy(out.counted, targets, ctx.stream);
    fill_zero(out.rewards, ctx.stream);
  }
  if (has_grads) {
    result.dx = l.dx ? l.dx : out.dx;
    const WeightGradient gradient = weight_gradient(ctx, weight_);
    result.dw = gradient.dw;
    result.adds_dw = gradient.adds;
  }
  LinearCrossEntropyReport report;
  if (ctx.loss)
    run_custom(ctx, result, in, op);
  else
    report = linear_cross_entropy(result, in, op, l.scratch, ctx.stream);
  if (l.dx) cast(out.dx, l.dx, ctx.stream);
  if (ctx.fp8 && is_fp8) {
    ctx.fp8->add(first_counter_, report.fp8.x);
    ctx.fp8->add(first_counter_ + 1, report.fp8.w);
    ctx.fp8->add(first_counter_ + 2, report.fp8.d_logits);
  }
  return report;
}

void LossHead::run_custom(LayerContext& ctx, const LinearCrossEntropyOut& out, const LinearCrossEntropyIn& in,
                          const LinearCrossEntropyConfig& op) const {
  if (op.precision == HeadPrecision::kFp8 || tp_.count > 1)
    fail(ErrorKind::kUsage, "a loss of your own needs whole logits of 16 bits or more: {}",
         tp_.count > 1 ? "set parallel.tp to 1" : "set head.precision to compute, f32, bf16 or f16");
  ctx.loss->run({.x = in.x,
                 .w = in.w,
                 .targets = in.targets,
                 .losses = out.losses,
                 .is_correct = out.is_correct,
                 .dx = out.dx,
                 .dw = out.dw,
                 .adds_dw = out.adds_dw,
                 .grad_scale = op.loss.grad_scale},
                ctx.stream);
}

void LossHead::check(LayerContext& ctx, const Tensor& sums, const Tensor& losses, const Tensor& x,
                     const Tensor& targets, int64_t tokens) const {
  const Span span(ctx.stream.trace, "head check");
  const ExactProducts exact(ctx.stream);
  const ScratchScope scope(ctx.scratch);
  const int64_t N = x.dim(0), k = std::min(tokens, N);
  const CheckLayout l = check_layout(ctx.scratch, k);
  const auto row = [&](int64_t i) { return i * N / k; };
  for (int64_t i = 0; i < k; ++i) {
    cast(l.x.rows(i, i + 1), x.rows(row(i), row(i) + 1), ctx.stream);
    copy(l.targets.rows(i, i + 1), targets.rows(row(i), row(i) + 1), ctx.stream);
    copy(l.trained.rows(i, i + 1), losses.rows(row(i), row(i) + 1), ctx.stream);
  }
  const Tensor w = ctx.params.best_weight(weight_);
  const int64_t step = w.dtype == DType::f32 ? Vp_ : l.w_part.dim(0);
  for (int64_t v = 0; v < Vp_; v += step) {
    const int64_t v_end = std::min(v + step, Vp_);
    const Tensor part = w.dtype == DType::f32 ? w : l.w_part.rows(0, v_end - v);
    if (w.dtype != DType::f32) cast(part, w.rows(v, v_end), ctx.stream);
    matmul(l.logits.columns(v, v_end), l.x, part, MatmulForm::kNT, false, ctx.stream);
  }

  const auto add_up = [&](int64_t row_of_sums, const CrossEntropyConfig& loss) {
    if (tp_.count == 1)
      cross_entropy(l.losses, {}, {}, l.logits, l.targets, loss, ctx.stream);
    else
      shared_cross_entropy({.losses = l.losses, .is_correct = {}, .d_logits = {}}, l.logits, l.targets, loss,
                           columns(ctx), l.tp, ctx.stream);
    loss_sums(sums_row(sums, row_of_sums), l.losses, {}, l.targets, ctx.stream);
  };
  CrossEntropyConfig plain = loss_;
  plain.label_smoothing = plain.z_loss = 0;
  add_up(0, loss_);
  add_up(1, plain);
  loss_sums(sums_row(sums, 2), l.trained, {}, l.targets, ctx.stream);
}

RawLoss read_raw_loss(const Tensor& sums) {
  const LossTotals objective = read_loss_sums(sums_row(sums, 0)), plain = read_loss_sums(sums_row(sums, 1)),
                   trained = read_loss_sums(sums_row(sums, 2));
  if (trained.counted == 0) return {};
  const double counted = static_cast<double>(trained.counted);
  return {.ce = plain.loss / counted,
          .objective = objective.loss / counted,
          .trained = trained.loss / counted,
          .tokens = trained.counted};
}

std::vector<std::string> LossHead::fp8_tensors() const {
  if (config_.precision != HeadPrecision::kFp8) return {};
  return {"head.x", "head.w", "head.d_logits"};
}

}  // namespace ingot
