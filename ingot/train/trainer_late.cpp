// The steps of a trainer on a device that judges them by itself: the host gives a step while the one before
// it is made, and reads it when the next has been given.
#include <algorithm>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/error.h"
#include "ingot/train/trainer.h"

namespace ingot {

// With f16 and FP8 together, what casts saw says whether gradients have overflowed (has_overflowed).
bool Trainer::is_judged_on_device() const {
  const bool is_f16 = config_.precision.compute == DType::f16,
             is_delayed = config_.precision.fp8.recipe == Fp8Recipe::kDelayed;
  return stream_.device == Device::kCuda && !stages_ && parts_->reducers().all.ranks() == 1 && !is_delayed &&
         (!is_f16 || fp8_.entries().empty()) && config_.head.filter == 0;
}

bool Trainer::can_give(const StepInputs& inputs) const {
  return late_ && !inputs.wants_stats && checked_tokens() == 0;
}

// As a graph, it is captured once kernels and plans have been chosen for its shapes, by a micro-batch that
// was given piece by piece. All micro-batches of a step share it: each lies in the same place, and without
// dropout (config/device_support.h) only weights and loss scale tell one step from the next.
void Trainer::give_micro(int64_t micro, [[maybe_unused]] const MicroBatch& batch,
                         [[maybe_unused]] int64_t micros) {
  const auto give = [&] {
    run_micro({MicroOp::Kind::kForward, micro}, batch, micros);
    run_micro({MicroOp::Kind::kBackward, micro}, batch, micros);
  };
  if constexpr (kHasCuda) {
    if (config_.train.has_graph && is_warm_) {
      const Span span(&trace_, "graph");
      const std::pair now{micros, loss_scaler_.scale()};
      if (graph_is_of_ == now) {
        fp8_.add_elements(graph_elements_);
      } else {
        graph_elements_ = fp8_.elements();
        graph_ = std::make_shared<cuda::Graph>(stream_, give);
        for (size_t t = 0; t < graph_elements_.size(); ++t)
          graph_elements_[t] = fp8_.elements()[t] - graph_elements_[t];
        graph_is_of_ = now;
      }
      return graph_->launch(stream_);
    }
  }
  give();
}

// Its kernels are the same in every step, but learning rate, momentum and step number are their arguments.
// The first update is given piece by piece, since Muon's products choose their kernels there.
void Trainer::give_update(const StepInputs& inputs, const Tensor& factor) {
  const auto give = [&] { optimizer_.step_by_factor(inputs, factor, stream_); };
  if constexpr (kHasCuda) {
    if (config_.train.has_graph && has_updated_) {
      const Span span(&trace_, "graph");
      if (update_graph_)
        update_graph_->replace(stream_, give);
      else
        update_graph_ = std::make_shared<cuda::Graph>(stream_, give);
      return update_graph_->launch(stream_);
    }
  }
  give();
  has_updated_ = true;
}

void Trainer::give(Loader& loader, int64_t micros, const StepInputs& inputs) {
  INGOT_CHECK(can_give(inputs), "Trainer::give: not such a step");
  Given step{.first_sample = loader.position(), .micros = micros, .scaler = loss_scaler_.state()};
  fp8_.begin_step(stream_);
  for (int64_t micro = 0; micro < micros; ++micro) {
    const MicroBatch batch = feed_.send(loader.next(), stream_);
    step.wait_s += loader.last_wait_s();
    params_.begin_micro(micro == micros - 1);
    give_micro(micro, batch, micros);
    late_->add(saved_.sums, stream_);
  }
  params_.finish_gradients();
  fp8_.bring_back(stream_);
  const Tensor factor =
      late_->judge(optimizer_.squares_on_device(stream_), expected_tokens(micros) / loss_scaler_.scale(),
                   config_.optimizer.grad_clip, stream_);
  give_update(inputs, factor);
  loss_scaler_.step_made();
  ++steps_done_;
  step.batches_sent = feed_.sent();
  given_.push_back(step);
}

std::optional<StepResult> Trainer::read_given(Loader& loader) {
  const LateSteps::Step late = late_->wait();
  const Given step = given_.front();
  if (late.is_bad) {
    const auto undone = static_cast<int64_t>(given_.size());
    late_->forgive(stream_);
    feed_.set_passed(feed_.sent());
    fp8_.forget();
    loss_scaler_.set_state(step.scaler);
    steps_done_ -= undone;
    optimizer_.set_t(optimizer_.t() - undone);
    loader.seek(step.first_sample);
    given_.clear();
    return std::nullopt;
  }
  given_.erase(given_.begin());
  feed_.set_passed(step.batches_sent);
  fp8_.receive();
  LossSums sums;
  for (const LossTotals& micro : late.sums)
    sums.add({.loss = micro.loss, .counted = micro.counted, .correct = micro.correct, .raw = {}});
  StepResult result;
  add_up(sums, result);
  result.wait_s = step.wait_s;
  result.loss_scale = step.scaler.scale;
  result.grad_correction =
      expected_tokens(step.micros) / result.loss_scale / std::max(1.0, static_cast<double>(result.tokens));
  result.grad_norm = late.norm;
  const double limit = config_.optimizer.grad_clip;
  result.clip = limit > 0 ? std::min(1.0, limit / (result.grad_norm + 1e-6)) : 1.0;
  return result;
}

}  // namespace ingot
