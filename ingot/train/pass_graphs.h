// PassGraphs replays the passes of micro-batches as CUDA graphs (train.graph).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "ingot/train/device_feed.h"
#include "ingot/train/executor.h"

namespace ingot {

namespace cuda {
class Graph;
}  // namespace cuda

class PassGraphs {
 public:
  // Borrows the feed of the micro-batches, which have `context` tokens per row.
  PassGraphs(const DeviceFeed& feed, int64_t context) : feed_(feed), context_(context) {}

  // Submits the passes of a micro-batch of an asynchronous step, as the graph of this key: captures it if there is none,
  // and launches it. A later call with the key repeats what was captured, so its passes must differ from the first ones only
  // in what lies in memory; a change of step.grad_scale, which is an argument of kernels, ends all graphs. REQUIRES: the
  // passes have run before without a graph, where libraries choose their kernels.
  void run(int64_t key, const ExecutorStep& step, LayerContext& ctx,
           const std::function<void(LayerContext&)>& passes);
  bool holds(int64_t key) const { return graphs_.contains(key); }
  // Returns true if graphs exist that a step of this scale can replay.
  bool has_graphs(float grad_scale) const { return !graphs_.empty() && grad_scale_ == grad_scale; }
  void clear() { graphs_.clear(); }

 private:
  struct Captured {
    std::shared_ptr<cuda::Graph> graph;  // shared_ptr, because builds without CUDA cannot destroy a Graph
    std::vector<int64_t> elements;       // elements that it casts to FP8, per tensor
    StoreState before, after;            // the store's state around the passes
  };
  void place_dropout(LayerContext& ctx) const;

  const DeviceFeed& feed_;
  int64_t context_;
  std::map<int64_t, Captured> graphs_;
  float grad_scale_ = 0;
};

}  // namespace ingot
