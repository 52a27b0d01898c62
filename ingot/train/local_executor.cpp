#include "ingot/train/local_executor.h"

#include <algorithm>

#include "ingot/core/trace.h"
#include "ingot/train/recompute_choice.h"
#include "ingot/train/step_results.h"

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
  set_recompute(config.recompute, 0);
}

void LocalExecutor::set_recompute(const RecomputePlan& plan, size_t least_slot_bytes) {
  activations_.release_to(0);
  runner_.clear();
  recompute_ = plan;
  saved_ = model_.make_saved(activations_, config_.shape.batch, config_.shape.context, plan,
                             model_.all_units(), least_slot_bytes);
}

bool LocalExecutor::run(const ExecutorStep& step) {
  const GraphUse& use = config_.graphs;
  feed_.begin_step(step.slot);
  runner_.begin_step(step);
  sums_ = {};
  const int64_t first = std::max<int64_t>(step.only, 0), end = step.only < 0 ? step.micros : step.only + 1;
  for (int64_t micro = first; micro < end; ++micro) {
    if (micro > first && step.must_end && step.must_end()) return false;
    const MicroBatch batch = feed_.send(step.next(), step.stream);
    step.params.begin_micro(step.only < 0 && micro + 1 == step.micros);
    // Micro-batches lie in the same memory, so they can share graphs.
    const bool is_last = micro + 1 == step.micros && use.differs_last;
    run_micro(step,
              {.micro = micro,
               .is_first = micro == first,
               .documents = batch.documents(),
               .graph = is_last ? 1 : 0,
               .can_be_captured = !is_last || use.holds_last},
              batch);
    if (micro == 0 && step.after_first) step.after_first();
    if (step.results)
      step.results->add(saved_.in_training.sums, step.stream);
    else
      feed_.copy_to_host(saved_.in_training.sums, step.stream);
  }
  return true;
}

// Runs forward and backward of one micro-batch.
void LocalExecutor::run_micro(const ExecutorStep& step, const MicroPass& pass, const MicroBatch& batch) {
  runner_.run(pass, step, [&](LayerContext& ctx) {
    {
      const Span span(ctx.stream.trace, "forward");
      LossSums sums =
          model_.forward(ctx, batch, saved_, step.grad_scale, pass.micro == 0 ? step.checked_tokens : 0);
      if (step.after_forward) step.after_forward(saved_, batch, sums);
      sums_.add(sums);
    }
    const Span span(ctx.stream.trace, "backward");
    model_.backward(ctx, batch, saved_);
  });
}

LossSums LocalExecutor::losses(Stream& stream) {
  LossSums total = sums_;
  for (const LossSums& micro : feed_.receive(stream)) total.add(micro);
  return total;
}

LossSums LocalExecutor::forward(LayerContext& ctx, const Batch& batch) {
  sums_ = model_.forward(ctx, feed_.send(batch, ctx.stream), saved_, 0);
  feed_.copy_to_host(saved_.in_evaluation.sums, ctx.stream);
  return losses(ctx.stream);
}

void LocalExecutor::infer(LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
                          const Tensor& logits) {
  model_.infer(ctx, batch, caches, logits);
}

}  // namespace ingot
