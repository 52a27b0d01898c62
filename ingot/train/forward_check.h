// ForwardCheck recomputes the losses of a micro-batch's first tokens by a forward pass in f32 from the
// f32 master weights. LossHead::check starts from the hidden states of the training path; this check
// starts from the tokens, so it also covers the blocks.
#pragma once

#include <memory>

#include "ingot/config/config.h"
#include "ingot/core/arena.h"
#include "ingot/data/loader.h"
#include "ingot/nn/transformer.h"

namespace ingot {

class ForwardCheck {
 public:
  // Returns null if there is nothing to compare or the check cannot run: no checks are configured,
  // everything is in f32, dropout changes the hidden states, this rank does not hold the f32 masters of
  // the whole model, or the weights are on a device.
  static std::unique_ptr<ForwardCheck> make(const RunConfig& config, const TrainingStore& params,
                                            const Transformer& model, const BatchShape& shape);

  // Sets raw's forward_* fields; losses (B*T) f32 are those that the training path computed for the
  // batch. Takes scratch_bytes() from trained.scratch and releases them before it returns.
  void compare(RawLoss& raw, const Tensor& losses, const MicroBatch& batch,
               const LayerContext& trained) const;
  size_t scratch_bytes() const;

 private:
  struct Memory {
    MicroBatch batch;
    Transformer::Saved saved;
  };
  ForwardCheck(const RunConfig& config, const BatchShape& shape);
  Memory lay_out(Arena& arena) const;

  int64_t B_, T_;  // number of sequences checked, and of tokens in each
  bool has_documents_;
  Transformer model_;
};

}  // namespace ingot
