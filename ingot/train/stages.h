// Seam: a model whose units several ranks have in stages (pipeline parallelism), and the way of micro-batches
// through them. A trainer without it has the whole model, and takes one micro-batch after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/nn/transformer.h"

namespace ingot {

// What the passes of a step need of the trainer.
struct StagedStep {
  TrainingStore& params;
  Stream& stream;
  int64_t micros = 1;                     // of this rank's samples
  int64_t only = -1;                      // at least 0: that micro-batch alone
  float grad_scale = 0;                   // of the sum of the losses; not 0
  int64_t checked_tokens = 0;             // of micro-batch 0
  std::function<MicroBatch()> next = {};  // called once for each micro-batch, in order; valid until the next
  std::function<LayerContext(int64_t micro)> context = {};
  std::function<void(const Transformer::Saved&)> seen = {};  // if given, called after each forward pass
};

struct StagesReport {
  std::string layout;       // "1f1b, units 0-2 | 3-5"
  double ideal_bubble = 0;  // fraction of a step in which a rank idles, where all stages cost the same
  double wait_s = 0;        // of the last step: for messages of other stages
  double step_s = 0;
};

class Stages {
 public:
  virtual ~Stages() = default;
  // All of these are called by all ranks alike.

  // Forward and backward of a step's micro-batches, or of one. Losses are those of units that are here, the
  // checked tokens' everyone's.
  virtual LossSums run(const StagedStep& step) = 0;
  // Losses of a micro-batch, without gradients; again those of units that are here.
  virtual LossSums forward(LayerContext& ctx, const MicroBatch& batch) = 0;
  // As Transformer::infer; every rank gets the logits.
  virtual void infer(LayerContext& ctx, const Tensor& tokens, std::vector<KvCache>& caches,
                     const Tensor& logits) = 0;
  virtual const StagesReport& report() const = 0;
  virtual const Arena& arena() const = 0;  // of activations
};

}  // namespace ingot
