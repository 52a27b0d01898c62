// AveragedWeights replaces the weights with their moving averages (optimizer.ema) for as long as the
// object lives. Its destructor restores the weights bit for bit.
#pragma once

#include "ingot/nn/param_store.h"
#include "ingot/optim/optimizer.h"

namespace ingot {

class AveragedWeights {
 public:
  // REQUIRES: the optimizer keeps averages of this store's parameters, and all gradients are zero.
  // Gradients are not changed.
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
