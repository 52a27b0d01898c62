#include "ingot/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/copy.h"
#include "ingot/core/error.h"
#include "ingot/core/nvtx.h"
#include "ingot/ops/deterministic.h"
#include "ingot/ops/tf32.h"

namespace ingot {

std::vector<OptimParam> optimizer_params(TrainingStore& store, uint64_t seed, const TensorParallel& tp) {
  std::vector<OptimParam> params;
  for (const ParamShard& shard : store.shards()) {
    const ParamSpec& spec = store.list()[shard.id];
    const int64_t n = shard.elements();
    const bool is_shard = store.is_sharded(), is_first = spec.is_sharded() || tp.rank == 0;
    params.push_back(
        {.name = spec.name,
         .id = shard.id,
         .role = spec.role,
         .shape = !is_shard          ? spec.shape
                  : spec.is_vector() ? Shape{n}
                                     : Shape{1, n},
         .logical = is_shard ? spec.full_shape() : Shape{},
         .rects = is_shard ? rects_of(spec, shard.begin, shard.end) : std::vector<Rect>{},
         .is_scattered = spec.is_sharded(),
         .fused_rows = spec.fused_rows,
         .w = shard.w,
         .tail = shard.tail,
         .rounding = {.seed = seed, .purpose = Purpose::kRounding, .stream = static_cast<uint32_t>(shard.id)},
         .compute = shard.compute,
         .g = shard.grad,
         .keeps_g = shard.is_overwritten,
         .contributes_to_norm = shard.contributes_to_norm,
         .is_added = is_first,
         .copies = spec.copies(shard.begin, shard.end)});
  }
  return params;
}

namespace {

Fp8State fp8_state(const RunConfig& config, const Transformer& model) {
  const bool is_delayed = config.precision.fp8.recipe == Fp8Recipe::kDelayed;
  return Fp8State(model.fp8_tensors(), is_delayed ? config.precision.fp8.amax_history : 0,
                  config.precision.fp8.margin);
}

}  // namespace

Trainer::Trainer(const RunConfig& config, Layout layout)
    : config_(config),
      layout_(std::move(layout)),
      state_{.fp8 = fp8_state(config, *layout_.model),
             .optimizer = Optimizer(config.optimizer,
                                    optimizer_params(*layout_.params, config.train.seed, layout_.model->tp()),
                                    layout_.update_comm.get(), layout_.stream->backing),
             .loss_scaler = config.precision.compute == DType::f16 ? LossScaler(config.precision.loss_scale)
                                                                   : LossScaler()},
      forward_check_(ForwardCheck::make(config, *layout_.params, *layout_.model, layout_.batch_shape)),
      scratch_(
          "scratch",
          std::max(layout_.executor->scratch_bytes(), forward_check_ ? forward_check_->scratch_bytes() : 0),
          memory_of(layout_.stream->device), layout_.stream->backing),
      loss_watch_(config) {
  Stream& stream = *layout_.stream;
  // Shards are whole only while they are used, and a stage has the weights of its units.
  const bool has_all_weights = config.parallel.fsdp == 1 && config.parallel.pp == 1;
  if (stream.backing == Backing::kAddresses && has_all_weights)
    state_.fp8.hold_weights(layout_.model->fp8_weights(), stream);
  if (can_check_on_device())
    results_.emplace(layout_.data_shard.micros(config.train.grad_accum),
                     StepResults::Ranks{.count = config.parallel.ranks(),
                                        .group = layout_.step_group,
                                        .counts_squares = layout_.mesh->place.replica == 0,
                                        .counts_losses = layout_.mesh->place.tp_rank == 0},
                     stream.backing);
  if (stream.backing == Backing::kAddresses) return;
  stream.trace = &trace_;
  allow_tf32(stream, config_.precision.allows_tf32);
  set_deterministic(stream, config_.train.is_deterministic);
  if (stream.device == Device::kCuda) nvtx_ = nvtx_listener();
  trace_.set_listener(nvtx_.get());
  layout_.model->bring_to_device(stream);
  state_.fp8.bring_to_device(stream, kStepSlots);
  if (has_all_weights) state_.fp8.hold_weights(layout_.model->fp8_weights(), stream);
}

void Trainer::initialise() {
  init_params(*layout_.params, config_.train.seed, *layout_.stream);
  layout_.params->refresh_compute(*layout_.stream);
}

LayerContext Trainer::context(float dropout_p, int64_t first_row) {
  return {.params = *layout_.params,
          .region = *layout_.region,
          .scratch = scratch_,
          .stream = *layout_.stream,
          .dropout = {.p = dropout_p,
                      .seed = config_.train.seed,
                      .step = static_cast<uint64_t>(state_.steps_done),
                      .first_row = first_row},
          .window = window_};
}

std::unique_ptr<AveragedWeights> Trainer::average_weights() {
  if (config_.optimizer.ema == 0 || state_.optimizer.t() == 0) return nullptr;
  return std::make_unique<AveragedWeights>(*layout_.params, state_.optimizer, *layout_.stream);
}

EvalWalk Trainer::walk(int64_t max_tokens, const EvalProgress& should_continue) const {
  return {.max_tokens = max_tokens,
          .shape = layout_.batch_shape,
          .data_shard = layout_.data_shard,
          .should_continue = should_continue};
}

std::vector<double> Trainer::score_documents(const TokenSource& pairs, const EvalProgress& should_continue) {
  const Span span(&trace_, "reference");
  LayerContext ctx = context(0, 0);
  return ingot::score_documents(*layout_.executor, ctx, pairs, walk(0, should_continue), *layout_.mesh->data);
}

EvalResult Trainer::evaluate(const TokenSource& text, int64_t max_tokens,
                             const EvalProgress& should_continue) {
  const Span span(&trace_, "evaluation");
  LayerContext ctx = context(0, 0);
  const std::unique_ptr<AveragedWeights> averaged = average_weights();
  return ingot::evaluate(*layout_.executor, ctx, text, walk(max_tokens, should_continue),
                         *layout_.mesh->data);
}

LossSums Trainer::forward(const Batch& batch, CustomLoss* loss) {
  LayerContext ctx = context(0, 0);
  ctx.loss = loss;
  return layout_.executor->forward(ctx, batch);
}

// The norms of a sharded parameter come from the sums of squares over all ranks.
std::vector<ParamStats> Trainer::stats() {
  const Optimizer& optimizer = state_.optimizer;
  std::vector<ParamStats> stats(optimizer.stats().begin(), optimizer.stats().end());
  for (ParamStats& s : stats) s.grad_norm /= clip_;  // the optimizer saw clipped gradients
  if (!layout_.params->is_sharded()) return stats;
  std::vector<double> sums;
  for (size_t p = 0; p < stats.size(); ++p) {
    const ParamStats& s = stats[p];
    const double count = optimizer.contributes_to_norm(p) ? 1 : 0;
    for (double sum : {s.weight_norm * s.weight_norm, s.grad_norm * s.grad_norm,
                       s.update_norm * s.update_norm, s.update_dot_weight})
      sums.push_back(count * sum);
  }
  layout_.mesh->weights->sum(sums);
  for (size_t p = 0; p < stats.size(); ++p)
    stats[p] = {.name = stats[p].name,
                .weight_norm = std::sqrt(sums[4 * p]),
                .grad_norm = std::sqrt(sums[4 * p + 1]),
                .update_norm = std::sqrt(sums[4 * p + 2]),
                .update_dot_weight = sums[4 * p + 3]};
  return stats;
}

std::vector<Trainer::ArenaUse> Trainer::arenas() const {
  std::vector<const Arena*> arenas = layout_.params->arenas();
  for (const Arena* arena : {&state_.optimizer.arena(), &state_.optimizer.scratch()}) arenas.push_back(arena);
  arenas.insert(arenas.end(), layout_.executor->arenas().begin(), layout_.executor->arenas().end());
  arenas.push_back(&scratch_);
  if (const Arena* held = state_.fp8.held_arena()) arenas.push_back(held);
  if (results_)
    for (const Arena* arena : results_->arenas()) arenas.push_back(arena);
  std::vector<ArenaUse> uses;
  for (const Arena* arena : arenas) uses.push_back({arena->name(), arena->capacity_bytes(), arena->memory()});
  return uses;
}

}  // namespace ingot
