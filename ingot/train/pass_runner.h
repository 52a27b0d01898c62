// PassRunner runs the forward and backward passes of a step's micro-batches, by themselves or as CUDA graphs
// (train.graph).
//
// Libraries choose their kernels when a pass runs for the first time: those of attention for a number of
// documents, and those of products for gradients that they write (the first micro-batch of a step) or add to.
// The host may then wait for the whole device, and the pass cannot be captured. Kernels and graphs hold for
// one window of attention. Graphs also hold for one number of micro-batches, because with shards the passes
// of another may find other weights gathered, and for one grad_scale, which is an argument of kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "ingot/train/device_feed.h"
#include "ingot/train/executor.h"

namespace ingot {

namespace cuda {
class Graph;
}  // namespace cuda

// A pass of a micro-batch.
struct MicroPass {
  int64_t micro = 0;
  bool is_first = false;        // of the step
  int64_t documents = 0;        // elements of the micro-batch's cu_seqlens
  int64_t graph = 0;            // passes that agree in this and in the two above run as the same graph
  bool can_be_captured = true;  // false: its messages go through the host
};

class PassRunner {
 public:
  // Borrows the feed of the micro-batches, which have `context` tokens per row.
  PassRunner(const DeviceFeed& feed, int64_t context, bool has_graphs)
      : feed_(feed), context_(context), has_graphs_(has_graphs) {}

  // Begins the step of the store, and decides whether its passes run as graphs.
  void begin_step(const ExecutorStep& step);
  // True if the host need not wait to submit the pass: its kernels are chosen, and its graph is captured if
  // it has one.
  bool is_ready(const MicroPass& pass) const;
  // Does the same for the evaluation of a micro-batch, which has no graph, and which runs now.
  bool is_evaluation_ready(int64_t documents);
  // Submits the operations of a pass. A graph repeats what it captured, so its passes may differ only in what
  // lies in memory.
  void run(const MicroPass& pass, const ExecutorStep& step,
           const std::function<void(LayerContext&)>& operations);
  // Forgets all kernels and graphs: the passes will be others.
  void clear();

 private:
  // The passes for which kernels were chosen: those of attention and those of products, independently.
  struct Chosen {
    std::set<int64_t> documents;
    std::set<bool> are_first;

    bool has(const MicroPass& pass) const {
      return documents.contains(pass.documents) && are_first.contains(pass.is_first);
    }
  };
  using Key = std::tuple<int64_t, bool, int64_t>;
  static Key key_of(const MicroPass& pass) { return {pass.documents, pass.is_first, pass.graph}; }
  struct Captured {
    std::shared_ptr<cuda::Graph> graph;  // shared_ptr, because builds without CUDA cannot destroy a Graph
    std::vector<int64_t> elements;       // elements that it casts to FP8, per tensor
    StoreState before, after;            // the store's state around the passes
  };
  void end_step();
  void replay(Captured& captured, const ExecutorStep& step, LayerContext& ctx,
              const std::function<void(LayerContext&)>& operations);
  void place_dropout(LayerContext& ctx) const;

  const DeviceFeed& feed_;
  int64_t context_;
  bool has_graphs_;
  bool uses_graphs_ = false;  // in the current step
  int64_t window_ = 0, micros_ = 0;
  float grad_scale_ = 0;
  Chosen chosen_, running_;      // in earlier steps, and in the current one
  std::set<int64_t> evaluated_;  // numbers of documents
  std::map<Key, Captured> graphs_;
};

}  // namespace ingot
