// Finds where a loss or a gradient stopped being finite by computing micro-batches again.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "ingot/train/trainer.h"

namespace ingot {

NonFinitePlace Trainer::bad_loss_place() {
  return first_non_finite(params_, saved_, stream_).value_or(NonFinitePlace{"head", "the sum of the losses"});
}

// Adds the losses from the device to `total`. If the loss of a micro-batch is not finite, computes the
// first such micro-batch again to find the place.
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
  result.non_finite = NonFinite{NonFinite::Kind::kLoss, data_shard_.number(micro), bad_loss_place()};
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

// Computes each of this rank's micro-batches again by itself, starting from zero gradients.
NonFinite Trainer::find_bad_gradient(Loader& loader, int64_t first_sample, int64_t micros) {
  NonFinite sum{NonFinite::Kind::kGradientNorm, -1, {}};
  if (const auto place = first_non_finite_gradient(params_, stream_))
    sum = {NonFinite::Kind::kGradient, -1, *place};
  else
    sum.place = largest_gradient(params_, stream_);
  std::optional<NonFinite> found;
  const int64_t end = loader.position();
  loader.seek(first_sample);
  for (int64_t micro = 0; micro < data_shard_.micros(micros); ++micro) {
    discard();
    run_lone_micro(loader, micro, micros);
    params_.finish_gradients();
    if (found) continue;
    if (const auto place = first_non_finite_gradient(params_, stream_))
      found = {NonFinite::Kind::kGradient, data_shard_.number(micro), *place};
    else if (!std::isfinite(optimizer_.grad_norm(stream_)))
      found = {NonFinite::Kind::kGradientNorm, data_shard_.number(micro), largest_gradient(params_, stream_)};
  }
  loader.seek(end);
  // If only the sum is not finite, prefer a rank that has a gradient that is not finite.
  Reducer& all = reducers().all;
  const bool is_here = sum.kind == NonFinite::Kind::kGradient;
  std::optional<NonFinite> first = first_of_ranks(found, all);
  if (!first) first = first_of_ranks(is_here ? std::optional(sum) : std::nullopt, all);
  if (!first) first = first_of_ranks(sum, all);
  return *first;
}

}  // namespace ingot
