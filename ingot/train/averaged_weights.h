// The moving averages of the weights (optimizer.ema) in the weights' place, for as long as this object lives;
// then the weights are back, bit for bit.
#pragma once

#include "ingot/nn/param_store.h"
#include "ingot/optim/optimizer.h"

namespace ingot {

class AveragedWeights {
 public:
  // REQUIRES: the optimizer keeps averages of this store's parameters; all gradients are zero, and are left
  // alone.
  AveragedWeights(TrainingStore& params, const Optimizer& optimizer, Stream& stream);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  void swap_masters();

  TrainingStore& params_;
  const Optimizer& optimizer_;
  Stream& stream_;
};

}  // namespace ingot
