#include "ingot/train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "ingot/core/copy.h"
#include "ingot/core/error.h"
#include "ingot/core/nvtx.h"
#include "ingot/ops/deterministic.h"
#include "ingot/ops/tf32.h"
#include "ingot/train/averaged_weights.h"

namespace ingot {
namespace {

size_t activation_bytes(const Transformer& model, int64_t B, int64_t T, const RecomputePlan& plan,
                        Device device) {
  Arena arena("activations plan", memory_of(device));
  model.make_saved(arena, B, T, plan);
  return arena.peak_bytes();
}

// The slowest rank's, so that all choose the same.
BlockTimes agreed(BlockTimes times, Reducer& all) {
  double* const parts[] = {&times.norm_s, &times.activation_s, &times.heads_s,    &times.proj_s,
                           &times.pre_s,  &times.down_s,       &times.embedding_s};
  std::array<double, std::size(parts)> values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = *parts[i];
  all.max(values);
  for (size_t i = 0; i < values.size(); ++i) *parts[i] = values[i];
  return times;
}

// By the config's policy; kAuto is decided by measuring the first block here and now.
RecomputePlan choose_recompute(const RunConfig& config, Transformer& model, ParamStore& params, int64_t B,
                               Reducer& all, Stream& stream) {
  const int64_t layers = model.config().layers, T = config.model.context;
  if (config.activations.policy != RecomputePolicy::kAuto) return recompute_plan(config.activations, layers);
  model.bring_to_device(stream);
  // Pages that nobody has written are all one page of zeros, from which products would read too fast.
  const UnitBuffers& block = params.get(1);
  for (const Tensor& weights : {block.master, block.compute}) fill_zero(weights, stream);
  const BlockTimes times = agreed(model.time_block(params, B, T, stream), all);
  return fastest_plan(
      layers, times, static_cast<size_t>(config.activations.budget_bytes),
      [&](const RecomputePlan& plan) { return activation_bytes(model, B, T, plan, stream.device); });
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

std::vector<OptimParam> optimizer_params(TrainingStore& store, uint64_t seed, const TensorShare& share) {
  std::vector<OptimParam> params;
  for (const ParamPiece& piece : store.pieces()) {
    const ParamSpec& spec = store.list()[piece.id];
    const int64_t n = piece.elements();
    const bool is_piece = store.is_sharded(), is_first = spec.is_sharded() || share.rank == 0;
    std::vector<int64_t> row_parts = spec.row_parts;  // of the logical tensor
    for (int64_t& rows : row_parts) rows *= spec.full_shape()[0] / spec.shape[0];
    params.push_back(
        {.name = spec.name,
         .role = optimizer_role(spec.role),
         .shape = !is_piece          ? spec.shape
                  : spec.is_vector() ? Shape{n}
                                     : Shape{1, n},
         .logical = is_piece ? spec.full_shape() : Shape{},
         .boxes = is_piece ? boxes_of(spec, piece.begin, piece.end) : std::vector<Box>{},
         .is_scattered = spec.is_sharded(),
         .row_parts = row_parts,
         .w = piece.w,
         .tail = piece.tail,
         .rounding = {.seed = seed, .purpose = Purpose::kRounding, .stream = static_cast<uint32_t>(piece.id)},
         .compute = piece.compute,
         .g = piece.grad,
         .is_counted = piece.is_counted && is_first,
         .is_added = is_first});
  }
  return params;
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

}  // namespace

Trainer::Trainer(const RunConfig& config, std::unique_ptr<TrainerParts> parts)
    : config_(config),
      stream_(make_stream(config.train.device)),
      parts_(std::move(parts)),
      share_(parts_->share(config.train)),
      model_(config.model.resolved(), config.precision.compute, config.head, config.precision.fp8,
             parts_->tensor_share(config)),
      fp8_(model_.fp8_tensors(),
           config.precision.fp8.recipe == Fp8Recipe::kDelayed ? config.precision.fp8.amax_history : 0,
           config.precision.fp8.margin),
      params_(parts_->make_store(model_.params(), config, stream_)),
      stages_(parts_->make_stages(model_, config)),
      optimizer_(config.optimizer, optimizer_params(params_, config.train.seed, model_.share()),
                 parts_->shared_update(config)),
      loss_scaler_(config.precision.compute == DType::f16 ? LossScaler(config.precision.loss_scale)
                                                          : LossScaler()),
      planned_(choose_recompute(config, model_, params_, share_.batch_size, reducers().all, stream_)),
      activations_("activations",
                   stages_ ? 0
                           : activation_bytes(model_, share_.batch_size, config.model.context, planned_,
                                              stream_.device),
                   memory_of(stream_.device)),
      scratch_("scratch", model_.scratch_bytes(share_.batch_size, config.model.context, true, stream_.device),
               memory_of(stream_.device)),
      feed_(stream_.device, batch_shape(), share_.micros(config.train.grad_accum)) {
  stream_.trace = &trace_;
  allow_tf32(stream_, config.precision.allows_tf32);
  set_deterministic(stream_, config.train.is_deterministic);
  if (stream_.device == Device::kCuda) nvtx_ = nvtx_listener();
  trace_.set_listener(nvtx_.get());
  model_.bring_to_device(stream_);
  fp8_.bring_to_device(stream_);
  if (!stages_) set_recompute(planned_);
  if (is_judged_on_device()) late_.emplace(share_.micros(config.train.grad_accum));
}

void Trainer::initialise() {
  init_params(params_, config_.train.seed, stream_);
  params_.refresh_compute(stream_);
}

void Trainer::set_recompute(const RecomputePlan& plan) {
  activations_.release_to(0);
  is_warm_ = false;
  graph_is_of_ = {};
  saved_ = model_.make_saved(activations_, share_.batch_size, model_.config().context, plan);
}

BatchShape Trainer::batch_shape() const {
  return {.batch = share_.batch_size,
          .context = model_.config().context,
          .vocab_size = model_.config().vocab,
          .document_mask = config_.data.has_document_mask};
}

LayerContext Trainer::context(float dropout_p, int64_t first_row) {
  return {.params = params_,
          .region = parts_->region(),
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

// Tokens whose loss is checked in the next step.
int64_t Trainer::checked_tokens() const {
  const HeadConfig& head = config_.head;
  const bool is_due =
      head.raw_ce_every > 0 && (steps_done_ == 0 || (steps_done_ + 1) % head.raw_ce_every == 0);
  return is_due ? head.raw_ce_tokens : 0;
}

// On any rank. A cast to FP8 clamps infinities, so what it saw counts beside what came of it.
bool Trainer::has_overflowed(const StepResult& result) {
  if (!loss_scaler_.is_dynamic()) return false;
  const bool is_infinite = !std::isfinite(result.grad_norm) || std::isinf(result.fp8.amax);
  std::array<double, 1> ranks{is_infinite ? 1.0 : 0.0};
  reducers().all.max(ranks);
  return ranks[0] > 0;
}

// Forward or backward of one micro-batch, for the gradients of the sum of losses * scale / expected tokens.
LossSums Trainer::run_micro(const MicroOp& op, const MicroBatch& batch, int64_t micros) {
  LayerContext ctx = context(static_cast<float>(config_.model.dropout),
                             share_.first_row(op.micro) * model_.config().context);
  ctx.fp8 = &fp8_;
  if (op.kind == MicroOp::Kind::kForward) {
    const Span span(&trace_, "forward");
    return model_.forward(ctx, batch, saved_,
                          static_cast<float>(loss_scaler_.scale() / expected_tokens(micros)),
                          op.micro == 0 ? checked_tokens() : 0);
  }
  const Span span(&trace_, "backward");
  model_.backward(ctx, batch, saved_);
  is_warm_ = true;
  return {};
}

LossSums Trainer::run_micro_batches(Loader& loader, int64_t micros, StepResult& result) {
  if (stages_) return run_stages(loader, micros, result);
  LossSums total;
  MicroBatch batch;
  const int64_t own = share_.micros(micros);
  if (schedule_.empty() || schedule_.back().micro != own - 1)
    schedule_ = accumulation_schedule(own);  // the ramp's next stage
  for (const MicroOp& op : schedule_) {
    if (op.kind == MicroOp::Kind::kForward) {
      batch = feed_.send(loader.next(), stream_);
      result.wait_s += loader.last_wait_s();
      params_.begin_micro(op.micro == own - 1);
    }
    const LossSums sums = run_micro(op, batch, micros);
    total.add(sums);
    if (op.kind == MicroOp::Kind::kForward) feed_.bring_back(saved_.sums, stream_);
    if (std::isfinite(sums.loss) || result.non_finite) continue;
    result.non_finite = NonFinite{NonFinite::Kind::kLoss, share_.number(op.micro), bad_loss_place()};
  }
  params_.finish_gradients();
  return total;
}

NonFinitePlace Trainer::bad_loss_place() {
  return first_non_finite(params_, saved_, stream_).value_or(NonFinitePlace{"head", "the sum of the losses"});
}

// From a device, with the first micro-batch whose loss is not finite: where in it, is found by computing it
// again.
void Trainer::receive_losses(Loader& loader, int64_t first_sample, int64_t micros, LossSums& total,
                             StepResult& result) {
  const std::span<const LossSums> sums = feed_.receive(stream_);
  for (const LossSums& of_micro : sums) total.add(of_micro);
  const auto bad =
      std::ranges::find_if(sums, [](const LossSums& of_micro) { return !std::isfinite(of_micro.loss); });
  if (bad == sums.end()) return;
  const int64_t end = loader.position(), micro = bad - sums.begin();
  loader.seek(first_sample);
  for (int64_t i = 0; i < micro; ++i) loader.next();
  run_micro({MicroOp::Kind::kForward, micro}, feed_.send(loader.next(), stream_), micros);
  result.non_finite = NonFinite{NonFinite::Kind::kLoss, share_.number(micro), bad_loss_place()};
  loader.seek(end);
}

void Trainer::run_lone_micro(Loader& loader, int64_t micro, int64_t micros) {
  if (stages_) {
    StagedStep step = staged_step(loader, micros);
    step.only = micro;
    stages_->run(step);
    return;
  }
  const MicroBatch batch = feed_.send(loader.next(), stream_);
  params_.begin_micro(false);
  run_micro({MicroOp::Kind::kForward, micro}, batch, micros);
  run_micro({MicroOp::Kind::kBackward, micro}, batch, micros);
}

// Each micro-batch alone, from gradients that are zero; on every rank its own.
NonFinite Trainer::find_bad_gradient(Loader& loader, int64_t first_sample, int64_t micros) {
  NonFinite sum{NonFinite::Kind::kGradientNorm, -1, {}};
  if (const auto place = first_non_finite_gradient(params_, stream_))
    sum = {NonFinite::Kind::kGradient, -1, *place};
  else
    sum.place = largest_gradient(params_, stream_);
  std::optional<NonFinite> found;
  const int64_t end = loader.position();
  loader.seek(first_sample);
  for (int64_t micro = 0; micro < share_.micros(micros); ++micro) {
    discard();
    run_lone_micro(loader, micro, micros);
    params_.finish_gradients();
    if (found) continue;
    if (const auto place = first_non_finite_gradient(params_, stream_))
      found = {NonFinite::Kind::kGradient, share_.number(micro), *place};
    else if (!std::isfinite(optimizer_.grad_norm(stream_)))
      found = {NonFinite::Kind::kGradientNorm, share_.number(micro), largest_gradient(params_, stream_)};
  }
  loader.seek(end);
  // Of a sum, whoever has a gradient that is not finite knows most.
  Reducer& all = reducers().all;
  const bool is_here = sum.kind == NonFinite::Kind::kGradient;
  std::optional<NonFinite> first = first_of_ranks(found, all);
  if (!first) first = first_of_ranks(is_here ? std::optional(sum) : std::nullopt, all);
  if (!first) first = first_of_ranks(sum, all);
  return *first;
}

// This rank's sums become those of all.
void Trainer::add_up(LossSums& sums, StepResult& result) {
  result.fp8 = fp8_.total();
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  std::array<double, 8> all{sums.loss,
                            number(sums.counted),
                            number(sums.correct),
                            number(sums.head_tiles),
                            number(sums.head_filtered),
                            number(result.fp8.elements),
                            number(result.fp8.saturated),
                            number(result.fp8.underflowed)};
  reducers().data.sum(all);
  const double counted = std::max(1.0, all[1]);
  result.loss = all[0] / counted;
  result.top1 = all[2] / counted;
  result.tokens = static_cast<int64_t>(all[1]);
  if (all[3] > 0) result.head_filtered = all[4] / all[3];
  result.fp8.elements = static_cast<int64_t>(all[5]);
  result.fp8.saturated = static_cast<int64_t>(all[6]);
  result.fp8.underflowed = static_cast<int64_t>(all[7]);
}

double Trainer::grad_norm() {
  const double own = optimizer_.grad_norm(stream_);
  if (reducers().weights.ranks() == 1) return own;
  std::array<double, 1> squares{own * own};
  reducers().weights.sum(squares);
  return std::sqrt(squares[0]);
}

StepResult Trainer::gradients(Loader& loader, int64_t micros) {
  INGOT_CHECK(given_.empty(), "Trainer::gradients: {} steps are under way", given_.size());
  StepResult result;
  const int64_t first_sample = loader.position();
  fp8_.begin_step(stream_);
  LossSums sums = run_micro_batches(loader, micros, result);
  fp8_.bring_back(stream_);
  const double norm = grad_norm();  // a device's stream is waited for here, once in a step
  fp8_.receive();
  if (feed_.is_on_device()) receive_losses(loader, first_sample, micros, sums, result);
  add_up(sums, result);
  // The mean is over the tokens that were counted, whatever was expected.
  result.loss_scale = loss_scaler_.scale();
  result.grad_correction =
      expected_tokens(micros) / result.loss_scale / std::max(1.0, static_cast<double>(result.tokens));
  result.grad_norm = norm * result.grad_correction;
  if (!std::isfinite(result.loss))
    result.non_finite = stages_ ? find_bad_loss(loader, first_sample, micros)
                                : first_of_ranks(result.non_finite, reducers().all);
  else if (has_overflowed(result) && loss_scaler_.overflowed())
    result.lowered_scale = loss_scaler_.scale();
  else if (!std::isfinite(result.grad_norm))
    result.non_finite = find_bad_gradient(loader, first_sample, micros);
  result.raw = sums.raw;
  if (!result.non_finite) check_trained_loss(sums.raw, config_.head.raw_ce_limit, steps_done_ + 1);
  const double limit = config_.optimizer.grad_clip;
  result.clip = limit > 0 ? std::min(1.0, limit / (result.grad_norm + 1e-6)) : 1.0;
  return result;
}

// The history of delayed scaling is one for all ranks.
void Trainer::share_amaxes() {
  const size_t tensors = fp8_.entries().size();
  amaxes_.resize(tensors);
  for (size_t t = 0; t < tensors; ++t) amaxes_[t] = static_cast<double>(fp8_.entries()[t].stats.amax);
  reducers().all.max(amaxes_);
  for (size_t t = 0; t < tensors; ++t) fp8_[static_cast<int>(t)].amax = static_cast<float>(amaxes_[t]);
}

void Trainer::update(const StepResult& result, const StepInputs& inputs) {
  INGOT_CHECK(!result.non_finite && !result.lowered_scale && std::isfinite(result.grad_norm),
              "Trainer::update: {} is not finite", result.grad_norm);
  optimizer_.step(inputs, static_cast<float>(result.grad_correction * result.clip), stream_);
  if (!fp8_.amaxes().empty()) share_amaxes();
  fp8_.end_step();
  loss_scaler_.step_made();
  has_updated_ = true;
  ++steps_done_;
}

void Trainer::discard() {
  for (const ParamPiece& piece : params_.pieces()) fill_zero(piece.grad, stream_);
}

// Of a parameter that ranks keep in pieces: from the sums of squares over all of them.
std::vector<ParamStats> Trainer::stats() {
  std::vector<ParamStats> stats(optimizer_.stats().begin(), optimizer_.stats().end());
  if (!params_.is_sharded()) return stats;
  std::vector<double> sums;
  for (size_t p = 0; p < stats.size(); ++p) {
    const ParamStats& s = stats[p];
    const double count = optimizer_.is_counted(p) ? 1 : 0;
    for (double sum : {s.weight_norm * s.weight_norm, s.grad_norm * s.grad_norm,
                       s.update_norm * s.update_norm, s.update_dot_weight})
      sums.push_back(count * sum);
  }
  reducers().weights.sum(sums);
  for (size_t p = 0; p < stats.size(); ++p)
    stats[p] = {.name = stats[p].name,
                .weight_norm = std::sqrt(sums[4 * p]),
                .grad_norm = std::sqrt(sums[4 * p + 1]),
                .update_norm = std::sqrt(sums[4 * p + 2]),
                .update_dot_weight = sums[4 * p + 3]};
  return stats;
}

StepResult Trainer::step(Loader& loader, const StepInputs& inputs) {
  const StepResult result = gradients(loader, config_.train.grad_accum);
  if (result.non_finite) {
    discard();
    fail(ErrorKind::kNumerics,
         "step {}: {}; the update was not made. Lower optimizer.lr or raise schedule.warmup_steps",
         steps_done_ + 1, result.non_finite->text());
  }
  if (result.lowered_scale)
    discard();
  else
    update(result, inputs);
  return result;
}

EvalResult Trainer::evaluate(const TokenSource& text, int64_t max_tokens) {
  const Span span(&trace_, "evaluation");
  LayerContext ctx = context(0, 0);
  std::optional<AveragedWeights> averaged;
  if (config_.optimizer.ema > 0 && optimizer_.t() > 0) averaged.emplace(params_, optimizer_, stream_);
  return ingot::evaluate(
      model_, ctx, feed_, saved_, text,
      {.max_tokens = max_tokens, .has_document_mask = config_.data.has_document_mask, .share = share_},
      reducers().data, stages_);
}

std::vector<Trainer::ArenaUse> Trainer::arenas() const {
  std::vector<ArenaUse> uses;
  std::vector<const Arena*> arenas = params_.arenas();
  const Arena* activations = stages_ ? &stages_->arena() : &activations_;
  for (const Arena* own : {&optimizer_.arena(), &optimizer_.scratch(), activations, &scratch_})
    arenas.push_back(own);
  for (const Arena* arena : feed_.arenas()) arenas.push_back(arena);
  if (late_)
    for (const Arena* arena : late_->arenas()) arenas.push_back(arena);
  for (const Arena* arena : arenas) uses.push_back({arena->name(), arena->capacity_bytes()});
  return uses;
}

}  // namespace ingot
