// Asynchronous steps, which the device checks itself: the host submits a step while the previous one
// runs, and collects each result after it has submitted the next step.
#include <algorithm>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/error.h"
#include "ingot/train/trainer.h"

namespace ingot {

// With f16 and FP8 together, has_overflowed needs the amax of the casts, so such steps are synchronous.
bool Trainer::is_judged_on_device() const {
  const bool is_f16 = config_.precision.compute == DType::f16,
             is_delayed = config_.precision.fp8.recipe == Fp8Recipe::kDelayed;
  return stream_.device == Device::kCuda && !stages_ && parts_->reducers().all.ranks() == 1 && !is_delayed &&
         (!is_f16 || fp8_.entries().empty()) && config_.head.filter == 0;
}

bool Trainer::can_submit(const StepInputs& inputs) const {
  return results_ring_ && !inputs.wants_stats && checked_tokens() == 0;
}

// Submits forward and backward of a micro-batch, as a graph if train.has_graph. The graph is captured
// after one micro-batch has run without it, since that run chooses kernels and plans for the shapes. All
// micro-batches of a step share the graph: each lies in the same memory, and without dropout
// (config/device_support.h) only weights and loss scale differ from step to step.
void Trainer::submit_micro(int64_t micro, [[maybe_unused]] const MicroBatch& batch,
                           [[maybe_unused]] int64_t micros) {
  const auto submit = [&] {
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
        graph_ = std::make_shared<cuda::Graph>(stream_, submit);
        for (size_t t = 0; t < graph_elements_.size(); ++t)
          graph_elements_[t] = fp8_.elements()[t] - graph_elements_[t];
        graph_is_of_ = now;
      }
      return graph_->launch(stream_);
    }
  }
  submit();
}

// Submits the update, as a graph if train.has_graph. Its kernels are the same in every step; learning
// rate, momentum and step number are their arguments and are replaced. The first update runs without a
// graph, because Muon's products choose their kernels there.
void Trainer::submit_update(const StepInputs& inputs, const Tensor& factor) {
  const auto submit = [&] { optimizer_.step_by_factor(inputs, factor, stream_); };
  if constexpr (kHasCuda) {
    if (config_.train.has_graph && has_updated_) {
      const Span span(&trace_, "graph");
      if (update_graph_)
        update_graph_->replace(stream_, submit);
      else
        update_graph_ = std::make_shared<cuda::Graph>(stream_, submit);
      return update_graph_->launch(stream_);
    }
  }
  submit();
  has_updated_ = true;
}

void Trainer::submit(Loader& loader, int64_t micros, const StepInputs& inputs) {
  INGOT_CHECK(can_submit(inputs), "Trainer::submit: not such a step");
  Submitted step{.first_sample = loader.position(), .micros = micros, .scaler = loss_scaler_.state()};
  fp8_.begin_step(stream_);
  for (int64_t micro = 0; micro < micros; ++micro) {
    const MicroBatch batch = feed_.send(loader.next(), stream_);
    step.wait_s += loader.last_wait_s();
    params_.begin_micro(micro == micros - 1);
    submit_micro(micro, batch, micros);
    results_ring_->add(saved_.sums, stream_);
  }
  params_.finish_gradients();
  fp8_.bring_back(stream_);
  const Tensor factor = results_ring_->judge(optimizer_.squares_on_device(stream_),
                                             expected_tokens(micros) / loss_scaler_.scale(),
                                             config_.optimizer.grad_clip, stream_);
  submit_update(inputs, factor);
  loss_scaler_.step_made();
  ++steps_done_;
  step.batches_sent = feed_.sent();
  submitted_.push_back(step);
}

std::optional<StepResult> Trainer::collect(Loader& loader) {
  const StepResultRing::Step late = results_ring_->wait();
  const Submitted step = submitted_.front();
  if (late.is_bad) {
    const auto undone = static_cast<int64_t>(submitted_.size());
    results_ring_->reset(stream_);
    feed_.set_passed(feed_.sent());
    fp8_.forget();
    loss_scaler_.set_state(step.scaler);
    steps_done_ -= undone;
    optimizer_.set_t(optimizer_.t() - undone);
    loader.seek(step.first_sample);
    submitted_.clear();
    return std::nullopt;
  }
  submitted_.erase(submitted_.begin());
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
