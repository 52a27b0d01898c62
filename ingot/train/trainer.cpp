#include "ingot/train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <cstring>
#include "ingot/train/averaged_weights.h"

#include "ingot/core/error.h"

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

// Tokens whose loss is checked in the step after `steps_done`.
int64_t checked_tokens(const HeadConfig& head, int64_t steps_done) {
  const bool is_due = head.raw_ce_every > 0 && (steps_done == 0 || (steps_done + 1) % head.raw_ce_every == 0);
  return is_due ? head.raw_ce_tokens : 0;
}

// The loss that is trained on must be the loss: a lower precision may blur it, not move it.
void check_trained_loss(const RawLoss& raw, double limit, int64_t step) {
  const double gap = std::abs(raw.trained - raw.objective);
  if (raw.tokens == 0 || gap <= limit * std::max(1.0, raw.objective)) return;
  fail(
      ErrorKind::kNumerics,
      "step {}: the training path gives {} tokens a loss of {:.4f}, but in f32 from the master weights it is "
      "{:.4f}; what is trained on is not the loss any more, and the update was not made. Set head.precision "
      "or precision.compute to f32 to find the cause; head.raw_ce_limit = {} is the difference allowed",
      step, raw.tokens, raw.trained, raw.objective, limit);
}

MicroBatch micro_batch(const Batch& batch) {
  return {.tokens = batch.tokens, .targets = batch.targets, .doc_start = batch.doc_start};
}

}  // namespace

Trainer::Trainer(const RunConfig& config)
    : config_(config),
      model_(config.model.resolved(), config.precision.compute, config.head, config.precision.fp8),
      fp8_(model_.fp8_tensors(),
           config.precision.fp8.recipe == Fp8Recipe::kDelayed ? config.precision.fp8.amax_history : 0,
           config.precision.fp8.margin),
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

double Trainer::expected_tokens(int64_t micros) const {
  return static_cast<double>(micros * config_.train.batch_size * model_.config().context);
}

// Forward or backward of one micro-batch, for the gradients of the sum of losses / expected tokens.
LossSums Trainer::run_micro(const MicroOp& op, const MicroBatch& batch, int64_t micros) {
  const int64_t rows = config_.train.batch_size * model_.config().context;
  LayerContext ctx = context(static_cast<float>(config_.model.dropout), op.micro * rows);
  ctx.fp8 = &fp8_;
  if (op.kind == MicroOp::Kind::kForward) {
    const Span span(&trace_, "forward");
    return model_.forward(ctx, batch, saved_, static_cast<float>(1 / expected_tokens(micros)),
                          op.micro == 0 ? checked_tokens(config_.head, steps_done_) : 0);
  }
  const Span span(&trace_, "backward");
  model_.backward(ctx, batch, saved_);
  return {};
}

LossSums Trainer::run_micro_batches(Loader& loader, int64_t micros, StepResult& result) {
  LossSums total;
  MicroBatch batch;
  if (schedule_.back().micro != micros - 1)
    schedule_ = accumulation_schedule(micros);  // the ramp's next stage
  for (const MicroOp& op : schedule_) {
    if (op.kind == MicroOp::Kind::kForward) {
      batch = micro_batch(loader.next());
      result.wait_s += loader.last_wait_s();
    }
    if (result.non_finite) continue;  // the loader goes on to the end of the step
    const LossSums sums = run_micro(op, batch, micros);
    total.add(sums);
    if (std::isfinite(sums.loss)) continue;
    const auto place = first_non_finite(params_, saved_);
    result.non_finite = NonFinite{NonFinite::Kind::kLoss, op.micro,
                                  place.value_or(NonFinitePlace{"head", "the sum of the losses"})};
  }
  return total;
}

// Each micro-batch alone, from gradients that are zero.
NonFinite Trainer::find_bad_gradient(Loader& loader, int64_t first_sample, int64_t micros) {
  NonFinite found{NonFinite::Kind::kGradientNorm, -1, {}};
  if (const auto place = first_non_finite_gradient(params_))
    found = {NonFinite::Kind::kGradient, -1, *place};
  else
    found.place = largest_gradient(params_);
  const int64_t end = loader.position();
  loader.seek(first_sample);
  for (int64_t micro = 0; micro < micros && found.micro < 0; ++micro) {
    discard();
    const MicroBatch batch = micro_batch(loader.next());
    run_micro({MicroOp::Kind::kForward, micro}, batch, micros);
    run_micro({MicroOp::Kind::kBackward, micro}, batch, micros);
    const auto place = first_non_finite_gradient(params_);
    if (place)
      found = {NonFinite::Kind::kGradient, micro, *place};
    else if (!std::isfinite(optimizer_.grad_norm(stream_)))
      found = {NonFinite::Kind::kGradientNorm, micro, largest_gradient(params_)};
  }
  loader.seek(end);
  return found;
}

StepResult Trainer::gradients(Loader& loader, int64_t micros) {
  StepResult result;
  const int64_t first_sample = loader.position();
  fp8_.begin_step();
  const LossSums local = run_micro_batches(loader, micros, result);
  std::array<double, 3> sums{local.loss, static_cast<double>(local.counted),
                             static_cast<double>(local.correct)};
  reducer_.sum(sums);
  const double counted = std::max(1.0, sums[1]);
  result.loss = sums[0] / counted;
  result.top1 = sums[2] / counted;
  result.tokens = static_cast<int64_t>(sums[1]);

  // The mean is over the tokens that were counted, whatever was expected.
  result.grad_correction = expected_tokens(micros) / counted;
  result.grad_norm = optimizer_.grad_norm(stream_) * result.grad_correction;
  if (!result.non_finite && !std::isfinite(result.grad_norm))
    result.non_finite = find_bad_gradient(loader, first_sample, micros);
  result.raw = local.raw;
  if (!result.non_finite) check_trained_loss(local.raw, config_.head.raw_ce_limit, steps_done_ + 1);
  result.fp8 = fp8_.total();
  if (local.head_tiles > 0)
    result.head_filtered = static_cast<double>(local.head_filtered) / static_cast<double>(local.head_tiles);
  const double limit = config_.optimizer.grad_clip;
  result.clip = limit > 0 ? std::min(1.0, limit / (result.grad_norm + 1e-6)) : 1.0;
  return result;
}

void Trainer::update(const StepResult& result, const StepInputs& inputs) {
  INGOT_CHECK(!result.non_finite && std::isfinite(result.grad_norm), "Trainer::update: {} is not finite",
              result.grad_norm);
  optimizer_.step(inputs, static_cast<float>(result.grad_correction * result.clip), stream_);
  fp8_.end_step();
  ++steps_done_;
}

void Trainer::discard() {
  for (int unit = 0; unit < params_.list().units(); ++unit) {
    const Tensor& g = params_.get(unit).grad;
    std::memset(g.data, 0, g.bytes());
  }
}

StepResult Trainer::step(Loader& loader, const StepInputs& inputs) {
  const StepResult result = gradients(loader, config_.train.grad_accum);
  if (result.non_finite) {
    discard();
    fail(ErrorKind::kNumerics,
         "step {}: {}; the update was not made. Lower optimizer.lr or raise schedule.warmup_steps",
         steps_done_ + 1, result.non_finite->text());
  }
  update(result, inputs);
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
