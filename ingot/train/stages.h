// Stages is the interface for pipeline parallelism: the model's units are split into stages on several
// ranks, and micro-batches pass through them. Without it, a trainer holds the whole model and runs one
// micro-batch after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/nn/transformer.h"

namespace ingot {

// What the passes of a step need from the trainer.
struct StagedStep {
  TrainingStore& params;
  Stream& stream;
  int64_t micros = 1;                     // micro-batches of this rank's samples
  int64_t only = -1;                      // if >= 0, run this micro-batch only
  float grad_scale = 0;                   // factor of the sum of the losses; not 0
  int64_t checked_tokens = 0;             // tokens of micro-batch 0 whose loss is checked
  std::function<MicroBatch()> next = {};  // called once per micro-batch, in order; valid until the next call
  std::function<LayerContext(int64_t micro)> context = {};
  std::function<void(const Transformer::Saved&)> seen = {};  // if set, called after each forward pass
};

struct StagesReport {
  std::string layout;       // "1f1b, units 0-2 | 3-5"
  double ideal_bubble = 0;  // fraction of a step in which a rank idles if all stages cost the same
  double wait_s = 0;        // seconds of the last step spent waiting for messages of other stages
  double step_s = 0;
};

class Stages {
 public:
  virtual ~Stages() = default;
  // All ranks call every function alike.

  // Runs forward and backward of the step's micro-batches, or of step.only. Returns the losses of the
  // units on this rank; the checked tokens' losses are the same on every rank.
  virtual LossSums run(const StagedStep& step) = 0;
  // Returns the losses of a micro-batch for the units on this rank, without gradients.
  virtual LossSums forward(LayerContext& ctx, const MicroBatch& batch) = 0;
  // Same as Transformer::infer; every rank gets the logits.
  virtual void infer(LayerContext& ctx, const Tensor& tokens, std::vector<KvCache>& caches,
                     const Tensor& logits) = 0;
  virtual const StagesReport& report() const = 0;
  virtual const Arena& arena() const = 0;  // activations
};

}  // namespace ingot
