// LocalExecutor runs the passes of a rank that holds the whole model: forward and backward of one
// micro-batch after the other, all in the same activation memory.
#pragma once

#include <memory>
#include <utility>

#include "ingot/nn/recompute.h"
#include "ingot/train/device_feed.h"
#include "ingot/train/executor.h"

namespace ingot {

namespace cuda {
class Graph;
}  // namespace cuda

struct LocalExecutorConfig {
  BatchShape shape;  // of a micro-batch
  RecomputePlan recompute;
  int64_t micros = 0;      // the most micro-batches of a step; 0 for an executor that never trains
  bool has_graph = false;  // replays forward and backward of an asynchronous step as a CUDA graph
  // True if backward of a step's last micro-batch sends gradients to other ranks: that micro-batch runs without a graph.
  bool sends_gradients = false;
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
  void set_recompute(const RecomputePlan& plan) override;

 private:
  void run_micro(const ExecutorStep& step, int64_t micro, const MicroBatch& batch);
  void submit_micro(const ExecutorStep& step, int64_t micro, const MicroBatch& batch);

  const Transformer& model_;
  LocalExecutorConfig config_;
  Arena activations_;
  Transformer::Saved saved_;
  DeviceFeed feed_;
  LossSums sums_;  // The last run added these, as far as the host knows them.
  // The captured passes of a micro-batch. shared_ptr, because builds without CUDA cannot destroy a Graph.
  std::shared_ptr<cuda::Graph> graph_;
  float graph_scale_ = 0;                // grad_scale of graph_; 0: not captured
  std::vector<int64_t> graph_elements_;  // elements that graph_ casts to FP8, per tensor
  bool is_warm_ = false;                 // true once backward has run with the current recompute plan
};

}  // namespace ingot
