#include "ingot/train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <cstring>
#include "ingot/train/averaged_weights.h"

namespace ingot {
namespace {

size_t activation_bytes(const Transformer& model, int64_t B, int64_t T, const RecomputePlan& plan) {
  Arena arena("activations plan");
  model.make_saved(arena, B, T, plan);
  return arena.peak_bytes();
}

// By the config's policy; kAuto is decided by measuring the first block here and now.
RecomputePlan choose_recompute(const RunConfig& config, const Transformer& model, ParamStore& params) {
  const int64_t layers = model.config().layers, B = config.train.batch_size, T = config.model.context;
  if (config.activations.policy != RecomputePolicy::kAuto) return recompute_plan(config.activations, layers);
  // Pages that nobody has written are all one page of zeros, from which products would read too fast.
  const UnitBuffers& block = params.get(1);
  for (const Tensor& weights : {block.master, block.compute}) std::memset(weights.data, 0, weights.bytes());
  return fastest_plan(layers, model.time_block(params, B, T),
                      static_cast<size_t>(config.activations.budget_bytes),
                      [&](const RecomputePlan& plan) { return activation_bytes(model, B, T, plan); });
}

ParamRole optimizer_role(Role role) {
  switch (role) {
    case Role::kEmbedding:
      return ParamRole::kEmbedding;
    case Role::kPosition:
      return ParamRole::kPosition;
    case Role::kMatrix:
      return ParamRole::kMatrix;
    case Role::kHead:
      return ParamRole::kHead;
    case Role::kNorm:
      return ParamRole::kNorm;
    case Role::kBias:
      return ParamRole::kBias;
  }
  return ParamRole::kMatrix;
}

std::vector<OptimParam> optimizer_params(ResidentStore& store, uint64_t seed) {
  std::vector<OptimParam> params;
  for (size_t id = 0; id < store.list().specs().size(); ++id) {
    const ParamSpec& spec = store.list().specs()[id];
    const UnitBuffers& unit = store.get(spec.unit);
    const int64_t begin = spec.offset, end = spec.offset + spec.elements();
    const bool is_bf16_alone = store.masters() != Masters::kF32 && !spec.is_vector();
    const bool has_copy = store.masters() == Masters::kF32 && unit.compute.data != unit.master.data;
    const Tensor w = is_bf16_alone ? store.weight(static_cast<int>(id)) : store.master(static_cast<int>(id));
    params.push_back(
        {.name = spec.name,
         .role = optimizer_role(spec.role),
         .shape = spec.shape,
         .row_parts = spec.row_parts,
         .w = w.reshape({spec.elements()}),
         .tail = is_bf16_alone && unit.tail ? unit.tail.rows(begin, end) : Tensor{},
         .rounding = {.seed = seed, .purpose = Purpose::kRounding, .stream = static_cast<uint32_t>(id)},
         .compute = has_copy ? unit.compute.rows(begin, end) : Tensor{},
         .g = unit.grad.rows(begin, end)});
  }
  return params;
}

MicroBatch micro_batch(const Batch& batch) {
  return {.tokens = batch.tokens, .targets = batch.targets, .doc_start = batch.doc_start};
}

}  // namespace

Trainer::Trainer(const RunConfig& config)
    : config_(config),
      model_(config.model.resolved(), config.precision.compute),
      params_(model_.params(), config.precision.compute, true, config.precision.master),
      optimizer_(config.optimizer, optimizer_params(params_, config.train.seed)),
      planned_(choose_recompute(config, model_, params_)),
      activations_("activations",
                   activation_bytes(model_, config.train.batch_size, config.model.context, planned_)),
      scratch_("scratch", model_.scratch_bytes(config.train.batch_size, config.model.context, true)),
      schedule_(accumulation_schedule(config.train.grad_accum)) {
  stream_.trace = &trace_;
  set_recompute(planned_);
}

void Trainer::initialise() {
  init_params(params_, config_.train.seed);
  params_.refresh_compute(stream_);
}

void Trainer::set_recompute(const RecomputePlan& plan) {
  activations_.release_to(0);
  saved_ = model_.make_saved(activations_, config_.train.batch_size, model_.config().context, plan);
}

BatchShape Trainer::batch_shape() const {
  return {.batch = config_.train.batch_size,
          .context = model_.config().context,
          .vocab_size = model_.config().vocab,
          .document_mask = config_.data.has_document_mask};
}

LayerContext Trainer::context(float dropout_p, int64_t first_row) {
  return {.params = params_,
          .region = region_,
          .scratch = scratch_,
          .stream = stream_,
          .dropout = {.p = dropout_p,
                      .seed = config_.train.seed,
                      .step = static_cast<uint64_t>(steps_done_),
                      .first_row = first_row}};
}

// Gradients of the sum of losses / expected_tokens over all micro-batches of the step.
LossSums Trainer::run_micro_batches(Loader& loader, double expected_tokens, double& wait_s) {
  LossSums total;
  const int64_t rows = config_.train.batch_size * model_.config().context;
  MicroBatch batch;
  for (const MicroOp& op : schedule_) {
    LayerContext ctx = context(static_cast<float>(config_.model.dropout), op.micro * rows);
    if (op.kind == MicroOp::Kind::kForward) {
      batch = micro_batch(loader.next());
      wait_s += loader.last_wait_s();
      const Span span(&trace_, "forward");
      const LossSums sums = model_.forward(ctx, batch, saved_, static_cast<float>(1 / expected_tokens));
      total.loss += sums.loss;
      total.counted += sums.counted;
      total.correct += sums.correct;
    } else {
      const Span span(&trace_, "backward");
      model_.backward(ctx, batch, saved_);
    }
  }
  return total;
}

StepResult Trainer::step(Loader& loader, const StepInputs& inputs) {
  StepResult result;
  const double expected =
      static_cast<double>(config_.train.grad_accum * config_.train.batch_size * model_.config().context);
  const LossSums local = run_micro_batches(loader, expected, result.wait_s);
  std::array<double, 3> sums{local.loss, static_cast<double>(local.counted),
                             static_cast<double>(local.correct)};
  reducer_.sum(sums);
  const double counted = std::max(1.0, sums[1]);
  result.loss = sums[0] / counted;
  result.top1 = sums[2] / counted;
  result.tokens = static_cast<int64_t>(sums[1]);

  // The mean is over the tokens that were counted, whatever was expected.
  const double correction = expected / counted;
  result.grad_norm = optimizer_.grad_norm(stream_) * correction;
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm))
    fail(ErrorKind::kNumerics,
         "step {}: loss {} and gradient norm {} are not finite; the update was not made. Lower optimizer.lr "
         "or "
         "raise schedule.warmup_steps",
         steps_done_, result.loss, result.grad_norm);
  const double limit = config_.optimizer.grad_clip;
  result.clip = limit > 0 ? std::min(1.0, limit / (result.grad_norm + 1e-6)) : 1.0;
  optimizer_.step(inputs, static_cast<float>(correction * result.clip), stream_);
  ++steps_done_;
  return result;
}

EvalResult Trainer::evaluate(const TokenSource& text, int64_t max_tokens) {
  const Span span(&trace_, "evaluation");
  LayerContext ctx = context(0, 0);
  std::optional<AveragedWeights> averaged;
  if (config_.optimizer.ema > 0 && optimizer_.t() > 0) averaged.emplace(params_, optimizer_, stream_);
  return ingot::evaluate(model_, ctx, saved_, text, max_tokens, config_.data.has_document_mask);
}

std::vector<Trainer::ArenaUse> Trainer::arenas() const {
  std::vector<ArenaUse> uses;
  for (const Arena* arena : {&params_.params_arena(), &params_.grads_arena(), &optimizer_.arena(),
                             &optimizer_.scratch(), &activations_, &scratch_})
    uses.push_back({arena->name(), arena->capacity_bytes()});
  return uses;
}

}  // namespace ingot
