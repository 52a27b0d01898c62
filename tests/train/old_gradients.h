// Spoils what a step leaves in the memory of its gradients.
#pragma once

#include <cmath>
#include <vector>

#include "ingot/core/copy.h"
#include "ingot/train/trainer.h"

namespace ingot {

// Writes NaN over every gradient that the next step is to overwrite, so that one which it adds to instead
// makes that step fail.
inline void spoil_old_gradients(Trainer& trainer) {
  Stream& stream = *trainer.layout().stream;
  for (const ParamShard& shard : trainer.params().shards()) {
    if (!shard.is_overwritten || shard.elements() == 0) continue;
    std::vector<float> nan(static_cast<size_t>(shard.elements()), NAN);
    copy(shard.grad, Tensor(nan.data(), DType::f32, {shard.elements()}), stream);
    synchronize(stream);
  }
}

}  // namespace ingot
