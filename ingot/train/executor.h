// Executor runs the forward and backward passes of a step's micro-batches. LocalExecutor
// (train/local_executor.h) holds the whole model on this rank; Pipeline (parallel/pipeline.h) holds some of
// its units and exchanges activations with other ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/data/loader.h"
#include "ingot/nn/recompute.h"
#include "ingot/nn/transformer.h"

namespace ingot {

class StepResults;  // train/step_results.h

// The most steps in flight at one time. Each has a slot of its own, 0 <= slot < kStepSlots, in whatever keeps
// data of a step until the step is collected.
inline constexpr size_t kStepSlots = 2;

// ExecutorStep has the inputs of a step's passes.
struct ExecutorStep {
  TrainingStore& params;
  Stream& stream;
  int64_t micros = 1;          // micro-batches of this rank's samples
  int64_t only = -1;           // if >= 0, run this micro-batch only and do not reduce gradients over replicas
  float grad_scale = 0;        // factor of the sum of the losses; not 0
  int64_t checked_tokens = 0;  // tokens of micro-batch 0 whose loss is checked
  std::function<const Batch&()> next =
      {};  // called once per micro-batch, in order; valid until the next call
  std::function<LayerContext(int64_t micro)> context =
      {};  // all have one window, for which kernels and graphs hold
  // If set, called after the forward pass of each micro-batch, with its losses if the host knows them.
  std::function<void(const Transformer::Saved&, const MicroBatch&, LossSums&)> after_forward = {};
  // If set, called after the backward pass of micro-batch 0. A pipeline does not call it.
  std::function<void()> after_first = {};
  // If set, asked between two micro-batches; true abandons the step. A pipeline does not ask.
  std::function<bool()> must_end = {};
  // On a device: where the losses of an asynchronous step go; null for a step that the host waits for.
  StepResults* results = nullptr;
  size_t slot = 0;  // REQUIRES: the stream has passed the last step that had it
};

// The figures of the last step in a pipeline that the host knows.
struct PipelineReport {
  std::string layout;       // "1f1b, units 0-2 | 3-5"
  double ideal_bubble = 0;  // fraction of a step in which a rank idles if all stages cost the same
  double wait_s = 0;        // seconds of the step spent waiting for messages of other stages
  double step_s = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // All ranks call every function alike.

  // Runs forward and backward of the step's micro-batches and adds to the gradients; on a device it only
  // submits them. Returns false if the step was abandoned.
  virtual bool run(const ExecutorStep& step) = 0;
  // Returns the losses of the last run for the units on this rank; the checked tokens' losses are the same
  // on every rank. On a device it waits for the stream. REQUIRES: step.results was null.
  virtual LossSums losses(Stream& stream) = 0;
  // Returns the losses of a batch for the units on this rank, without gradients. Waits for the stream.
  virtual LossSums forward(LayerContext& ctx, const Batch& batch) = 0;
  // Same as Transformer::infer; every rank gets the logits.
  virtual void infer(LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
                     const Tensor& logits) = 0;
  Transformer::Infer bound_infer() {
    return [this](LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
                  const Tensor& logits) { infer(ctx, batch, caches, logits); };
  }

  // Makes the times of the step in a slot those of pipeline(). REQUIRES: the stream has passed the step.
  virtual void report(size_t /*slot*/) {}

  const RecomputePlan& recompute() const { return recompute_; }
  // The memory of one micro-batch for each part of the model that this rank runs by itself: the chunks of a
  // pipeline.
  virtual std::vector<const Transformer::Saved*> parts() const = 0;
  // Scratch of the context of run and forward.
  size_t scratch_bytes() const {
    size_t most = 0;
    for (const Transformer::Saved* part : parts()) most = std::max(most, part->scratch_bytes());
    return most;
  }

  // The memory of activations and batches; the activations come first.
  const std::vector<const Arena*>& arenas() const { return arenas_; }
  const std::optional<PipelineReport>& pipeline() const { return pipeline_; }

 protected:
  RecomputePlan recompute_;
  std::vector<const Arena*> arenas_;
  std::optional<PipelineReport> pipeline_;  // nullopt if this rank holds the whole model
};

}  // namespace ingot
