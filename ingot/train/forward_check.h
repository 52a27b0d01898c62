// ForwardCheck: computes the losses of a micro-batch's first tokens once more by a forward pass in f32 from
// the f32 master weights. Where LossHead::check starts from the hidden states of the training path, this one
// starts from the tokens, so it sees what the blocks do as well.
#pragma once

#include <memory>

#include "ingot/config/config.h"
#include "ingot/core/arena.h"
#include "ingot/data/loader.h"
#include "ingot/nn/transformer.h"

namespace ingot {

class ForwardCheck {
 public:
  // Null where there is nothing to compare or no place to do it: no checks are configured, everything is in
  // f32, dropout changes the hidden states, the weights have no f32 masters on this rank, or they lie on a
  // device.
  static std::unique_ptr<ForwardCheck> make(const RunConfig& config, const TrainingStore& params,
                                            const Transformer& model, const BatchShape& shape);

  // Sets raw's forward_* from the losses (B*T) f32 that the training path gave for the batch. It takes its
  // memory, scratch_bytes() of it, from trained.scratch and returns it.
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

  int64_t B_, T_;  // the first sequences of the batch, and the first tokens of each
  bool has_documents_;
  Transformer model_;
};

}  // namespace ingot
