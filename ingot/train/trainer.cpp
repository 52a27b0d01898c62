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
#include "ingot/train/recompute_choice.h"

namespace ingot {
namespace {

std::vector<OptimParam> optimizer_params(TrainingStore& store, uint64_t seed, const TensorParallel& tp) {
  std::vector<OptimParam> params;
  for (const ParamShard& shard : store.shards()) {
    const ParamSpec& spec = store.list()[shard.id];
    const int64_t n = shard.elements();
    const bool is_shard = store.is_sharded(), is_first = spec.is_sharded() || tp.rank == 0;
    std::vector<int64_t> fused_rows = spec.fused_rows;  // rows in the logical tensor
    for (int64_t& rows : fused_rows) rows *= spec.full_shape()[0] / spec.shape[0];
    params.push_back(
        {.name = spec.name,
         .role = spec.role,
         .shape = !is_shard          ? spec.shape
                  : spec.is_vector() ? Shape{n}
                                     : Shape{1, n},
         .logical = is_shard ? spec.full_shape() : Shape{},
         .rects = is_shard ? rects_of(spec, shard.begin, shard.end) : std::vector<Rect>{},
         .is_scattered = spec.is_sharded(),
         .fused_rows = fused_rows,
         .w = shard.w,
         .tail = shard.tail,
         .rounding = {.seed = seed, .purpose = Purpose::kRounding, .stream = static_cast<uint32_t>(shard.id)},
         .compute = shard.compute,
         .g = shard.grad,
         .is_counted = shard.is_counted && is_first,
         .is_added = is_first});
  }
  return params;
}

// Makes a stream without a device for kAddresses.
Stream trainer_stream(Device device, Backing backing) {
  if (backing == Backing::kMemory) return make_stream(device);
  Stream stream;
  stream.device = device;
  stream.backing = backing;
  return stream;
}

}  // namespace

Trainer::Trainer(const RunConfig& config, std::unique_ptr<TrainerParts> parts, Backing backing)
    : config_(config),
      stream_(trainer_stream(config.train.device, backing)),
      parts_(std::move(parts)),
      data_shard_(parts_->data_shard(config.train)),
      model_(config.model.resolved(), config.precision.compute, config.head, config.precision.fp8,
             parts_->tensor_parallel(config)),
      fp8_(model_.fp8_tensors(),
           config.precision.fp8.recipe == Fp8Recipe::kDelayed ? config.precision.fp8.amax_history : 0,
           config.precision.fp8.margin),
      params_(parts_->make_store(model_.params(), config, stream_)),
      stages_(parts_->make_stages(model_, config)),
      optimizer_(config.optimizer, optimizer_params(params_, config.train.seed, model_.tp()),
                 parts_->update_comm(config), backing),
      loss_scaler_(config.precision.compute == DType::f16 ? LossScaler(config.precision.loss_scale)
                                                          : LossScaler()),
      planned_(choose_recompute(config, model_, params_, data_shard_.batch_size, reducers().all, stream_)),
      activations_("activations",
                   stages_ ? 0
                           : activation_bytes(model_, data_shard_.batch_size, config.model.context, planned_,
                                              stream_.device),
                   memory_of(stream_.device), backing),
      forward_check_(ForwardCheck::make(config, params_, model_, batch_shape())),
      scratch_(
          "scratch",
          std::max(model_.scratch_bytes(data_shard_.batch_size, config.model.context, true, stream_.device),
                   forward_check_ ? forward_check_->scratch_bytes() : 0),
          memory_of(stream_.device), backing),
      feed_(stream_.device, batch_shape(), data_shard_.micros(config.train.grad_accum), backing),
      loss_watch_(config) {
  if (is_judged_on_device()) results_ring_.emplace(data_shard_.micros(config.train.grad_accum), backing);
  if (backing == Backing::kAddresses) return;
  stream_.trace = &trace_;
  allow_tf32(stream_, config.precision.allows_tf32);
  set_deterministic(stream_, config.train.is_deterministic);
  if (stream_.device == Device::kCuda) nvtx_ = nvtx_listener();
  trace_.set_listener(nvtx_.get());
  model_.bring_to_device(stream_);
  fp8_.bring_to_device(stream_);
  if (!stages_) set_recompute(planned_);
}

void Trainer::initialise() {
  init_params(params_, config_.train.seed, stream_);
  params_.refresh_compute(stream_);
}

void Trainer::set_recompute(const RecomputePlan& plan) {
  activations_.release_to(0);
  is_warm_ = false;
  graph_is_of_ = {};
  saved_ = model_.make_saved(activations_, data_shard_.batch_size, model_.config().context, plan);
}

BatchShape Trainer::batch_shape() const {
  return {.batch = data_shard_.batch_size,
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

// Returns true if the gradients overflowed on any rank. A cast to FP8 clamps infinities, so the casts'
// amax counts too.
bool Trainer::has_overflowed(const StepResult& result) {
  if (!loss_scaler_.is_dynamic()) return false;
  const bool is_infinite = !std::isfinite(result.grad_norm) || std::isinf(result.fp8.amax);
  std::array<double, 1> ranks{is_infinite ? 1.0 : 0.0};
  reducers().all.max(ranks);
  return ranks[0] > 0;
}

// Runs forward or backward of one micro-batch, with gradients of (sum of losses) * scale / (expected
// tokens).
LossSums Trainer::run_micro(const MicroOp& op, const MicroBatch& batch, int64_t micros) {
  LayerContext ctx = context(static_cast<float>(config_.model.dropout),
                             data_shard_.first_row(op.micro) * model_.config().context);
  ctx.fp8 = &fp8_;
  if (op.kind == MicroOp::Kind::kForward) {
    const Span span(&trace_, "forward");
    const int64_t checked = op.micro == 0 ? checked_tokens() : 0;
    LossSums sums = model_.forward(
        ctx, batch, saved_, static_cast<float>(loss_scaler_.scale() / expected_tokens(micros)), checked);
    if (checked > 0 && forward_check_) forward_check_->compare(sums.raw, saved_.losses, batch, ctx);
    return sums;
  }
  const Span span(&trace_, "backward");
  model_.backward(ctx, batch, saved_);
  is_warm_ = true;
  return {};
}

bool Trainer::is_any_rank_told(const std::atomic<bool>* is_told_to_end) {
  if (!is_told_to_end || feed_.is_on_device()) return false;
  std::array<double, 1> told{is_told_to_end->load() ? 1.0 : 0.0};
  reducers().all.max(told);
  return told[0] > 0;
}

LossSums Trainer::run_micro_batches(Loader& loader, int64_t micros, const std::atomic<bool>* is_told_to_end,
                                    StepResult& result) {
  if (stages_) return run_stages(loader, micros, result);
  LossSums total;
  MicroBatch batch;
  const int64_t own = data_shard_.micros(micros);
  if (schedule_.empty() || schedule_.back().micro != own - 1)
    schedule_ = accumulation_schedule(own);  // the batch ramp changed micros
  for (const MicroOp& op : schedule_) {
    if (op.kind == MicroOp::Kind::kForward) {
      result.is_abandoned = op.micro > 0 && is_any_rank_told(is_told_to_end);
      if (result.is_abandoned) break;
      batch = feed_.send(loader.next(), stream_);
      result.wait_s += loader.last_wait_s();
      params_.begin_micro(op.micro == own - 1);
    }
    const LossSums sums = run_micro(op, batch, micros);
    total.add(sums);
    if (op.kind == MicroOp::Kind::kForward) feed_.bring_back(saved_.sums, stream_);
    if (std::isfinite(sums.loss) || result.non_finite) continue;
    result.non_finite = NonFinite{NonFinite::Kind::kLoss, data_shard_.number(op.micro), bad_loss_place()};
  }
  params_.finish_gradients();
  return total;
}

// Replaces this rank's sums by those over all ranks.
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

StepResult Trainer::gradients(Loader& loader, int64_t micros, const std::atomic<bool>* is_told_to_end) {
  INGOT_CHECK(submitted_.empty(), "Trainer::gradients: {} steps are under way", submitted_.size());
  StepResult result;
  const int64_t first_sample = loader.position();
  fp8_.begin_step(stream_);
  LossSums sums = run_micro_batches(loader, micros, is_told_to_end, result);
  if (result.is_abandoned) {
    discard();
    loader.seek(first_sample);
    return result;
  }
  fp8_.bring_back(stream_);
  const double norm = grad_norm();  // on a device, the only wait for the stream in a step
  fp8_.receive();
  if (feed_.is_on_device()) receive_losses(loader, first_sample, micros, sums, result);
  add_up(sums, result);
  // The mean is over the tokens that were counted, not over those expected.
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
  if (!result.non_finite) loss_watch_.check(sums.raw, steps_done_ + 1);
  const double limit = config_.optimizer.grad_clip;
  result.clip = limit > 0 ? std::min(1.0, limit / (result.grad_norm + 1e-6)) : 1.0;
  return result;
}

// All ranks share one history of delayed scaling.
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
  clip_ = result.clip;
  if (!fp8_.amaxes().empty()) share_amaxes();
  fp8_.end_step();
  loss_scaler_.step_made();
  has_updated_ = true;
  ++steps_done_;
}

void Trainer::discard() {
  for (const ParamShard& shard : params_.shards()) fill_zero(shard.grad, stream_);
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

EvalResult Trainer::evaluate(const TokenSource& text, int64_t max_tokens, const EvalProgress& goes_on) {
  const Span span(&trace_, "evaluation");
  LayerContext ctx = context(0, 0);
  std::optional<AveragedWeights> averaged;
  if (config_.optimizer.ema > 0 && optimizer_.t() > 0) averaged.emplace(params_, optimizer_, stream_);
  const EvalWalk walk{max_tokens, config_.data.has_document_mask, data_shard_, goes_on};
  return ingot::evaluate(model_, ctx, feed_, saved_, text, walk, reducers().data, stages_);
}

}  // namespace ingot
