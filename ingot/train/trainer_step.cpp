// A step of the trainer: submit, collect, update.
#include <algorithm>
#include <array>
#include <cmath>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/error.h"
#include "ingot/optim/step_scale.h"
#include "ingot/train/guard.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

std::array<double, 3> counts_of(const Fp8Stats& fp8) {
  return {static_cast<double>(fp8.elements), static_cast<double>(fp8.saturated),
          static_cast<double>(fp8.underflowed)};
}

void set_counts(Fp8Stats& fp8, const std::array<double, 3>& counts) {
  fp8.elements = static_cast<int64_t>(counts[0]);
  fp8.saturated = static_cast<int64_t>(counts[1]);
  fp8.underflowed = static_cast<int64_t>(counts[2]);
}

}  // namespace

// With f16 and FP8 together, has_overflowed needs the amax of the casts, so such steps are synchronous.
bool Trainer::can_check_on_device() const {
  const bool is_f16 = config_.precision.compute == DType::f16;
  return layout_.stream->device == Device::kCuda && (!is_f16 || state_.fp8.entries().empty()) &&
         config_.head.filter == 0;
}

size_t Trainer::depth(const StepInputs& inputs) const {
  const bool is_delayed = config_.precision.fp8.recipe == Fp8Recipe::kDelayed;
  if (is_delayed && !state_.fp8.can_follow_history()) return 0;
  return results_ && !inputs.wants_stats && checked_tokens() == 0 ? kStepSlots - 1 : 0;
}

double Trainer::expected_tokens(int64_t micros) const {
  return static_cast<double>(micros * config_.train.batch_size * config_.model.context);
}

// Returns the number of tokens whose loss is checked in the next step.
int64_t Trainer::checked_tokens() const {
  const HeadConfig& head = config_.head;
  const int64_t steps = state_.steps_done;
  const bool is_due =
      head.raw_ce_every > 0 && head.dpo_beta == 0 && (steps == 0 || (steps + 1) % head.raw_ce_every == 0);
  return is_due ? head.raw_ce_tokens : 0;
}

bool Trainer::is_any_rank_stopping(const std::atomic<bool>& is_stop_requested) {
  return layout_.mesh->world->is_any(is_stop_requested.load());
}

// The passes of a step's micro-batches, with gradients of (sum of losses) * scale / (expected tokens).
ExecutorStep Trainer::executor_step(BatchSource& loader, const StepOrder& order) {
  ExecutorStep step{.params = *layout_.params, .stream = *layout_.stream};
  step.micros = layout_.data_shard.micros(order.micros);
  step.grad_scale = static_cast<float>(state_.loss_scaler.scale() / expected_tokens(order.micros));
  step.next = [&loader]() -> const Batch& { return loader.next(); };
  step.context = [this, loss = order.loss](int64_t micro) {
    LayerContext ctx = context(static_cast<float>(config_.model.dropout),
                               layout_.data_shard.first_row(micro) * config_.model.context);
    ctx.fp8 = &state_.fp8;
    ctx.loss = loss;
    return ctx;
  };
  return step;
}

void Trainer::submit(BatchSource& loader, const StepOrder& order) {
  INGOT_CHECK(order.is_asynchronous ? submitted_.size() <= depth(order.inputs) && depth(order.inputs) > 0
                                    : submitted_.empty(),
              "Trainer::submit: {} steps are in flight", submitted_.size());
  SubmittedStep submitted{.order = order,
                          .first_sample = loader.position(),
                          .scaler = state_.loss_scaler.state(),
                          .slot = submitted_.empty() ? 0 : (submitted_.back().slot + 1) % kStepSlots};
  window_ = order.inputs.window;
  ExecutorStep step = executor_step(loader, order);
  step.slot = submitted.slot;
  step.next = [&]() -> const Batch& {
    const Batch& batch = loader.next();
    submitted.wait_s += loader.last_wait_s();
    return batch;
  };
  if (order.is_asynchronous) {
    step.results = &*results_;
  } else {
    step.checked_tokens = order.loss ? 0 : checked_tokens();
    if (order.is_stop_requested && layout_.stream->device == Device::kCpu)
      step.must_end = [&] { return is_any_rank_stopping(*order.is_stop_requested); };
    if (step.checked_tokens > 0 && forward_check_)
      step.after_forward = [&, is_first = true](const Transformer::Saved& saved, const MicroBatch& batch,
                                                LossSums& sums) mutable {
        if (is_first) forward_check_->compare(sums.raw, saved.in_training.losses, batch, step.context(0));
        is_first = false;
      };
  }
  first_squares_ = 0;
  if (config_.train.has_noise_scale && step.micros > 1)
    step.after_first = [&] { first_squares_ = std::pow(state_.optimizer.grad_norm(*layout_.stream), 2); };
  state_.fp8.follow_history(order.is_asynchronous, *layout_.stream);
  state_.fp8.begin_step(*layout_.stream);
  LayerContext of_step = step.context(0);
  layout_.model->cast_weights(of_step);
  submitted.is_abandoned = !layout_.executor->run(step);
  layout_.params->wait_gradients();
  if (submitted.is_abandoned) {
    discard();
    loader.seek(submitted.first_sample);
  } else {
    if (state_.fp8.follows_history() && layout_.step_group)
      layout_.step_group->all_reduce("fp8 amaxes", state_.fp8.device()->amaxes(), ReduceOp::kMax);
    state_.fp8.copy_to_host(submitted.slot, *layout_.stream);
    if (order.is_asynchronous) submit_update(submitted);
  }
  submitted_.push_back(submitted);
}

// Submits the check and the update of an asynchronous step, the update as a graph if train.has_graph, unless
// ranks exchange messages in it. Its kernels are the same in every step; learning rate, momentum and step
// number are their arguments and are replaced. The first update runs without a graph, because Muon's products
// choose their kernels there.
void Trainer::submit_update(const SubmittedStep& step) {
  Stream& stream = *layout_.stream;
  const Tensor factor = results_->check_step(step.slot, state_.optimizer.squares_on_device(stream),
                                             expected_tokens(step.order.micros) / state_.loss_scaler.scale(),
                                             config_.optimizer.grad_clip, stream);
  const auto submit = [&] { state_.optimizer.step_by_factor(step.order.inputs, factor, stream); };
  bool is_submitted = false;
  if constexpr (kHasCuda) {
    if (config_.train.has_graph && has_updated_ && !state_.optimizer.has_messages()) {
      const Span span(&trace_, "graph");
      if (update_graph_)
        update_graph_->replace(stream, submit);
      else
        update_graph_ = std::make_shared<cuda::Graph>(stream, submit);
      update_graph_->launch(stream);
      is_submitted = true;
    }
  }
  if (!is_submitted) submit();
  state_.fp8.next_scales(factor, stream);
  has_updated_ = true;
  state_.loss_scaler.step_made();
  ++state_.steps_done;
}

StepResult Trainer::collect(BatchSource& loader) {
  INGOT_CHECK(!submitted_.empty(), "Trainer::collect: no step was submitted");
  const SubmittedStep step = submitted_.front();
  if (!step.order.is_asynchronous) {
    submitted_.pop_front();
    return collect_synchronous(loader, step);
  }
  const StepResults::Step oldest = results_->wait(step.slot);
  if (oldest.is_bad) {
    rewind(loader);
    StepOrder again = step.order;
    again.is_asynchronous = false;
    submit(loader, again);
    StepResult result = collect(loader);
    result.is_repeated = true;
    return result;
  }
  submitted_.pop_front();
  state_.fp8.receive(step.slot);
  state_.fp8.end_step();
  layout_.executor->report(step.slot);
  StepResult result = result_of(oldest.sums, step);
  result.fp8 = state_.fp8.total();
  if (!state_.fp8.entries().empty()) {
    std::array<double, 3> counts = counts_of(result.fp8);
    layout_.mesh->data->sum(counts);
    set_counts(result.fp8, counts);
  }
  result.grad_norm = oldest.norm;
  result.clip = clip_factor(result.grad_norm, config_.optimizer.grad_clip);
  result.is_updated = true;
  return result;
}

// Goes back to the start of the oldest of the asynchronous steps in flight, which have changed nothing.
void Trainer::rewind(BatchSource& loader) {
  const SubmittedStep& first = submitted_.front();
  const int64_t steps = std::ssize(submitted_);
  results_->reset(*layout_.stream);
  state_.loss_scaler.set_state(first.scaler);
  state_.steps_done -= steps;
  state_.optimizer.set_t(state_.optimizer.t() - steps);
  loader.seek(first.first_sample);
  submitted_.clear();
}

StepResult Trainer::collect_synchronous(BatchSource& loader, const SubmittedStep& step) {
  if (step.is_abandoned) {
    StepResult result;
    result.step = step;
    return result;
  }
  const double norm = grad_norm();  // on a device, the only wait for the stream in a step
  state_.fp8.receive(step.slot);
  const LossSums sums = layout_.executor->losses(*layout_.stream);
  layout_.executor->report(step.slot);
  StepResult result = totals(sums, step);
  result.grad_norm = norm * result.grad_correction;
  if (first_squares_ > 0) {
    // The step's gradient is the mean of those of all micro-batches.
    const auto parts = static_cast<double>(step.order.micros * config_.train.batch_size) /
                       static_cast<double>(layout_.data_shard.batch_size);
    result.micro_squares = layout_.mesh->world->sum(first_squares_) /
                           static_cast<double>(config_.parallel.dp) *
                           std::pow(result.grad_correction * parts, 2);
  }
  if (!std::isfinite(result.loss))
    result.non_finite = find_bad_loss(loader, step);
  else if (has_overflowed(result) && state_.loss_scaler.overflowed())
    result.lowered_scale = state_.loss_scaler.scale();
  else if (!std::isfinite(result.grad_norm))
    result.non_finite = find_bad_gradient(loader, step);
  result.raw = sums.raw;
  if (!result.non_finite) loss_watch_.check(sums.raw, state_.steps_done + 1);
  result.clip = clip_factor(result.grad_norm, config_.optimizer.grad_clip);
  return result;
}

// Returns what the losses of all ranks say about the step.
StepResult Trainer::result_of(const LossTotals& sums, const SubmittedStep& step) const {
  StepResult result;
  result.step = step;
  const double counted = static_cast<double>(std::max<int64_t>(1, sums.counted));
  result.loss = sums.loss / counted;
  result.top1 = static_cast<double>(sums.correct) / counted;
  result.tokens = sums.counted;
  result.grad_correction =
      grad_correction(expected_tokens(step.order.micros) / step.scaler.scale, result.tokens);
  return result;
}

// Adds up what the ranks know about the step.
StepResult Trainer::totals(const LossSums& sums, const SubmittedStep& step) {
  Fp8Stats fp8 = state_.fp8.total();
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const std::array<double, 3> casts = counts_of(fp8);
  std::array<double, 8> all{sums.loss,
                            number(sums.counted),
                            number(sums.correct),
                            number(sums.head_tiles),
                            number(sums.head_filtered),
                            casts[0],
                            casts[1],
                            casts[2]};
  layout_.mesh->data->sum(all);
  StepResult result = result_of(
      {.loss = all[0], .counted = static_cast<int64_t>(all[1]), .correct = static_cast<int64_t>(all[2])},
      step);
  if (all[3] > 0) result.head_filtered = all[4] / all[3];
  set_counts(fp8, {all[5], all[6], all[7]});
  if (config_.head.dpo_beta > 0) {
    result.rewards = sums.rewards;
    layout_.mesh->data->sum(result.rewards);
    for (double& reward : result.rewards) reward /= std::max(1.0, all[1]);
  }
  result.fp8 = fp8;
  return result;
}

double Trainer::grad_norm() {
  const double own = state_.optimizer.grad_norm(*layout_.stream);
  Communicator& weights = *layout_.mesh->weights;
  return weights.size() == 1 ? own : std::sqrt(weights.sum(own * own));
}

// Returns true if the gradients overflowed on any rank. A cast to FP8 clamps infinities, so the casts'
// amax counts too.
bool Trainer::has_overflowed(const StepResult& result) {
  if (!state_.loss_scaler.is_dynamic()) return false;
  return layout_.mesh->world->is_any(!std::isfinite(result.grad_norm) || std::isinf(result.fp8.amax));
}

// Gives all ranks one history of delayed scaling. In an asynchronous step their devices do it.
void Trainer::reduce_amaxes() {
  Fp8State& fp8 = state_.fp8;
  amaxes_.clear();
  for (const Fp8State::Entry& entry : fp8.entries()) amaxes_.push_back(static_cast<double>(entry.stats.amax));
  layout_.mesh->world->max(amaxes_);
  for (size_t t = 0; t < amaxes_.size(); ++t) fp8[static_cast<int>(t)].amax = static_cast<float>(amaxes_[t]);
}

void Trainer::update(const StepResult& result) {
  clip_ = result.clip;
  if (result.is_updated) return;
  INGOT_CHECK(!result.non_finite && !result.lowered_scale && std::isfinite(result.grad_norm),
              "Trainer::update: {} is not finite", result.grad_norm);
  state_.optimizer.step(result.step.order.inputs, static_cast<float>(result.grad_correction * result.clip),
                        *layout_.stream);
  if (!state_.fp8.amaxes().empty()) reduce_amaxes();
  state_.fp8.end_step();
  state_.loss_scaler.step_made();
  has_updated_ = true;
  ++state_.steps_done;
}

void Trainer::discard() {
  for (const ParamShard& shard : layout_.params->shards()) fill_zero(shard.grad, *layout_.stream);
}

StepResult Trainer::step(BatchSource& loader, const StepInputs& inputs) {
  submit(loader, {.micros = config_.train.grad_accum, .inputs = inputs});
  const StepResult result = collect(loader);
  if (result.non_finite) {
    discard();
    refuse_update(state_.steps_done + 1, result.non_finite->text());
  }
  if (result.lowered_scale)
    discard();
  else
    update(result);
  return result;
}

}  // namespace ingot
