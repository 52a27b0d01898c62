#include "ingot/train/local_executor.h"

#include <algorithm>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/trace.h"
#include "ingot/train/recompute_choice.h"
#include "ingot/train/step_result_ring.h"

namespace ingot {

LocalExecutor::LocalExecutor(const Transformer& model, const LocalExecutorConfig& config)
    : model_(model),
      config_(config),
      activations_(
          "activations",
          activation_bytes(model, config.shape.batch, config.shape.context, config.recompute, config.device),
          memory_of(config.device), config.backing),
      feed_(config.device, config.shape, config.micros, config.backing) {
  arenas_.push_back(&activations_);
  for (const Arena* arena : feed_.arenas()) arenas_.push_back(arena);
  set_recompute(config.recompute);
}

void LocalExecutor::set_recompute(const RecomputePlan& plan) {
  activations_.release_to(0);
  is_warm_ = false;
  graph_scale_ = 0;
  recompute_ = plan;
  saved_ = model_.make_saved(activations_, config_.shape.batch, config_.shape.context, plan);
}

bool LocalExecutor::run(const ExecutorStep& step) {
  feed_.begin_step(step.steps_in_flight);
  sums_ = {};
  const int64_t first = std::max<int64_t>(step.only, 0), end = step.only < 0 ? step.micros : step.only + 1;
  for (int64_t micro = first; micro < end; ++micro) {
    if (micro > first && step.must_end && step.must_end()) return false;
    const MicroBatch batch = feed_.send(step.next(), step.stream);
    step.params.begin_micro(step.only < 0 && micro + 1 == step.micros);
    submit_micro(step, micro, batch);
    if (step.results)
      step.results->add(saved_.sums, step.stream);
    else
      feed_.bring_back(saved_.sums, step.stream);
  }
  return true;
}

// Runs forward and backward of one micro-batch.
void LocalExecutor::run_micro(const ExecutorStep& step, int64_t micro, const MicroBatch& batch) {
  {
    LayerContext ctx = step.context(micro);
    const Span span(ctx.stream.trace, "forward");
    LossSums sums = model_.forward(ctx, batch, saved_, step.grad_scale, micro == 0 ? step.checked_tokens : 0);
    if (step.after_forward) step.after_forward(saved_, batch, sums);
    sums_.add(sums);
  }
  LayerContext ctx = step.context(micro);
  const Span span(ctx.stream.trace, "backward");
  model_.backward(ctx, batch, saved_);
  is_warm_ = true;
}

// Runs the micro-batch of an asynchronous step as a graph if train.has_graph. The graph is captured after
// one micro-batch has run without it, since that run chooses kernels and plans for the shapes. All
// micro-batches share the graph, except those that send gradients: each lies in the same memory, and without dropout
// (config/device_support.h) only the weights and grad_scale differ from step to step.
void LocalExecutor::submit_micro(const ExecutorStep& step, int64_t micro, const MicroBatch& batch) {
  if constexpr (kHasCuda) {
    const bool sends = config_.sends_gradients && step.only < 0 && micro + 1 == step.micros;
    if (step.results && config_.has_graph && is_warm_ && !sends) {
      const Span span(step.stream.trace, "graph");
      Fp8State& fp8 = *step.context(micro).fp8;
      if (graph_scale_ == step.grad_scale) {
        fp8.add_elements(graph_elements_);
      } else {
        graph_elements_ = fp8.elements();
        graph_ = std::make_shared<cuda::Graph>(step.stream, [&] { run_micro(step, micro, batch); });
        for (size_t t = 0; t < graph_elements_.size(); ++t)
          graph_elements_[t] = fp8.elements()[t] - graph_elements_[t];
        graph_scale_ = step.grad_scale;
      }
      return graph_->launch(step.stream);
    }
  }
  run_micro(step, micro, batch);
}

LossSums LocalExecutor::losses(Stream& stream) {
  LossSums total = sums_;
  for (const LossSums& micro : feed_.receive(stream)) total.add(micro);
  return total;
}

LossSums LocalExecutor::forward(LayerContext& ctx, const Batch& batch) {
  sums_ = model_.forward(ctx, feed_.send(batch, ctx.stream), saved_, 0);
  feed_.bring_back(saved_.sums, ctx.stream);
  return losses(ctx.stream);
}

void LocalExecutor::infer(LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
                          const Tensor& logits) {
  model_.infer(ctx, batch, caches, logits);
}

}  // namespace ingot
