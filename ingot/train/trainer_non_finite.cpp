// Finds where a loss or a gradient stopped being finite by computing micro-batches again.
#include <cmath>
#include <optional>

#include "ingot/train/trainer.h"

namespace ingot {

// Computes one micro-batch again, whose gradients are added to those that are there, and returns its losses.
LossSums Trainer::run_alone(BatchSource& loader, int64_t micro, const StepOrder& order,
                            const std::function<void(const Transformer::Saved&)>& after_forward) {
  ExecutorStep step = executor_step(loader, order);
  step.only = micro;
  if (after_forward)
    step.after_forward = [&](const Transformer::Saved& saved, const MicroBatch& /*batch*/,
                             LossSums& /*sums*/) { after_forward(saved); };
  layout_.executor->run(step);
  layout_.params->wait_gradients();
  return layout_.executor->losses(*layout_.stream);
}

// Computes each of this rank's micro-batches again on all ranks. The rank whose units made the loss of one
// not finite finds the place; weights that are not finite count only where a micro-batch read them.
NonFinite Trainer::find_bad_loss(BatchSource& loader, const SubmittedStep& step) {
  window_ = step.order.inputs.window;
  const NonFinitePlace sum_of_losses{"head", "the sum of the losses"};
  std::optional<NonFinite> found;
  const DataShard& data = layout_.data_shard;
  const int64_t end = loader.position();
  loader.seek(step.first_sample);
  for (int64_t micro = 0; micro < data.micros(step.order.micros); ++micro) {
    std::optional<NonFinitePlace> place;
    const LossSums sums = run_alone(loader, micro, step.order, [&](const Transformer::Saved& saved) {
      if (!found && !place) place = first_non_finite(*layout_.params, saved, *layout_.stream);
    });
    const bool is_own = !std::isfinite(sums.loss);
    if (!place && is_own) place = sum_of_losses;
    const bool is_bad = layout_.mesh->pp->is_any(is_own);  // the last stage knows the loss
    if (is_bad && place && !found) found = {NonFinite::Kind::kLoss, data.number(micro), *place};
    discard();
  }
  loader.seek(end);
  return first_of_ranks(found, *layout_.mesh->world)
      .value_or(NonFinite{NonFinite::Kind::kLoss, -1, sum_of_losses});
}

// Computes each of this rank's micro-batches again by itself, starting from zero gradients.
NonFinite Trainer::find_bad_gradient(BatchSource& loader, const SubmittedStep& step) {
  window_ = step.order.inputs.window;
  TrainingStore& params = *layout_.params;
  Stream& stream = *layout_.stream;
  const DataShard& data = layout_.data_shard;
  NonFinite sum{NonFinite::Kind::kGradientNorm, -1, {}};
  if (const auto place = first_non_finite_gradient(params, stream))
    sum = {NonFinite::Kind::kGradient, -1, *place};
  else
    sum.place = largest_gradient(params, stream);
  std::optional<NonFinite> found;
  const int64_t end = loader.position();
  loader.seek(step.first_sample);
  for (int64_t micro = 0; micro < data.micros(step.order.micros); ++micro) {
    discard();
    run_alone(loader, micro, step.order);
    if (found) continue;
    if (const auto place = first_non_finite_gradient(params, stream))
      found = {NonFinite::Kind::kGradient, data.number(micro), *place};
    else if (!std::isfinite(state_.optimizer.grad_norm(stream)))
      found = {NonFinite::Kind::kGradientNorm, data.number(micro), largest_gradient(params, stream)};
  }
  loader.seek(end);
  // If only the sum is not finite, prefer a rank that has a gradient that is not finite.
  Communicator& all = *layout_.mesh->world;
  const bool is_here = sum.kind == NonFinite::Kind::kGradient;
  std::optional<NonFinite> first = first_of_ranks(found, all);
  if (!first) first = first_of_ranks(is_here ? std::optional(sum) : std::nullopt, all);
  if (!first) first = first_of_ranks(sum, all);
  return *first;
}

}  // namespace ingot
