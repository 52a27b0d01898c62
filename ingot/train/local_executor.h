// LocalExecutor runs the passes of a rank that holds the whole model: forward and backward of one
// micro-batch after the other, all in the same activation memory.
#pragma once

#include "ingot/nn/recompute.h"
#include "ingot/train/device_feed.h"
#include "ingot/train/executor.h"
#include "ingot/train/pass_runner.h"

namespace ingot {

// GraphUse says which micro-batches of an asynchronous step run as CUDA graphs. The first micro-batch has its
// own graph, because it overwrites gradients; so has the last one if it sums gradients over ranks. All others
// share one.
struct GraphUse {
  bool has_graphs = false;    // train.graph
  bool differs_last = false;  // the last one sums gradients over ranks
  bool holds_last = true;     // false: these sums go through the host, so the last one runs without a graph
};

struct LocalExecutorConfig {
  BatchShape shape;  // of a micro-batch
  RecomputePlan recompute;
  int64_t micros = 0;  // the most micro-batches of a step; 0 for an executor that never trains
  GraphUse graphs = {};
  Device device = Device::kCpu;
  Backing backing = Backing::kMemory;
};

class LocalExecutor final : public Executor {
 public:
  // Borrows the model.
  LocalExecutor(const Transformer& model, const LocalExecutorConfig& config);

  bool run(const ExecutorStep& step) override;
  LossSums losses(Stream& stream) override;
  LossSums forward(LayerContext& ctx, const Batch& batch) override;
  void infer(LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
             const Tensor& logits) override;
  // Sets what forward keeps for backward from now on, for benchmarks. REQUIRES: it fits the activation
  // memory, whose size follows from the plan of the constructor.
  void set_recompute(const RecomputePlan& plan) { set_recompute(plan, activations_.capacity_bytes()); }
  std::vector<const Transformer::Saved*> parts() const override { return {&saved_}; }

 private:
  void set_recompute(const RecomputePlan& plan, size_t least_slot_bytes);
  void run_micro(const ExecutorStep& step, const MicroPass& pass, const MicroBatch& batch);

  const Transformer& model_;
  LocalExecutorConfig config_;
  Arena activations_;
  Transformer::Saved saved_;
  DeviceFeed feed_;
  PassRunner runner_{feed_, config_.shape.context, config_.graphs.has_graphs};
  LossSums sums_;  // The last run added these, as far as the host knows them.
};

}  // namespace ingot
