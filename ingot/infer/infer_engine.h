// InferEngine runs passes of a model over tokens of several sequences, and holds the memory for them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ingot/nn/transformer.h"

namespace ingot {

namespace cuda {
class Graph;
}  // namespace cuda

struct InferShape {
  int64_t slots = 1;        // sequences at the same time
  int64_t positions = 1;    // of each slot in the caches of keys and values
  int64_t tokens = 1;       // the most of a pass
  int64_t logits = 1;       // the most rows of logits of a pass
  bool has_graphs = false;  // A device replays passes of single tokens as CUDA graphs.
};

// Bytes of memory; all of them are the host's on the CPU.
struct InferBytes {
  size_t host = 0, device = 0;
};

// Returns the number of tokens that a pass may have without being too long for a caller who waits. A device
// needs more of them to be busy.
inline int64_t usual_tokens(Device device) { return device == Device::kCuda ? 1024 : 128; }

// Returns the shape for likelihoods of up to `positions` tokens of `slots` sequences at the same time.
InferShape scoring_shape(int64_t slots, int64_t positions, Device device);

class InferEngine {
 public:
  // Borrows the first four arguments and allocates memory on the stream's device. infer: computes the logits;
  // by default the model does. With that of an Executor, all ranks get the same logits, and there are no
  // graphs. REQUIRES: on a CUDA device bring_to_device was called and the weights are there.
  InferEngine(const Transformer& model, ParamStore& params, Region& region, Stream& stream,
              const InferShape& shape, Transformer::Infer infer = {});

  // Returns what an InferEngine takes; a model without weights is enough.
  static InferBytes planned_bytes(const Transformer& model, const InferShape& shape, Device device);

  // Appends the tokens of the segments, in their order, to the caches, and waits for the logits. The number
  // of rows is padded on a device (InferBatch). REQUIRES: as InferBatch, and no more than the shape has.
  void run(std::vector<InferSegment> segments, std::span<const int32_t> tokens);
  // Returns a row of the last pass's logits in host memory: (vocab), uncapped. The caller may change it.
  std::span<float> logits(int64_t row) const;

  const Transformer& model() const { return model_; }
  const InferShape& shape() const { return shape_; }

 private:
  // The memory of batches and logits, as laid out on an arena.
  struct Buffers {
    Tensor ids;     // (4, rows) i32
    Tensor logits;  // (logits, Vp) f32, with padding on a device
  };
  struct Arenas {
    Arena caches, scratch, host, there;  // there: copies of the host's buffers on a device; empty on the CPU
  };
  static Arenas plan(const Transformer& model, const InferShape& shape, Device device);
  static Arenas allocate(const Transformer& model, const InferShape& shape, Device device);
  static Buffers lay_out(Arena& arena, const Transformer& model, const InferShape& shape, Device device);
  static size_t scratch_bytes(const Transformer& model, const InferShape& shape, Device device);
  void run_on_device(LayerContext& ctx, const InferBatch& batch, const Tensor& logits);

  const Transformer& model_;
  ParamStore& params_;
  Region& region_;
  Stream& stream_;
  InferShape shape_;
  bool has_graphs_;
  Transformer::Infer infer_;
  Arenas arenas_;
  std::vector<KvCache> caches_;
  Buffers host_, there_;  // there_: on a device
  // Passes of single tokens, by their number of rows. The first one runs without a graph, because libraries
  // choose their kernels in it.
  struct Captured {
    int64_t longest = 0;                 // InferBatch::longest_decode of the graph
    std::shared_ptr<cuda::Graph> graph;  // shared_ptr, because builds without CUDA cannot destroy a Graph
  };
  std::map<int64_t, Captured> graphs_;
};

}  // namespace ingot
