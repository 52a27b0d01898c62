#include "ingot/train/averaged_weights.h"

#include "ingot/ops/cast.h"
#include "ingot/ops/swap_tensors.h"

namespace ingot {

AveragedWeights::AveragedWeights(TrainingStore& params, const Optimizer& optimizer, Stream& stream)
    : params_(params), optimizer_(optimizer), stream_(stream) {
  if (params_.masters() != Masters::kF32) params_.expand_masters(stream_);
  swap_masters();
  if (params_.masters() == Masters::kF32) params_.refresh_compute(stream_);
  size_t i = 0;
  for (const ParamShard& shard : params_.shards()) {
    const Tensor average = optimizer_.average(i++);
    if (shard.w.dtype != DType::f32) cast(shard.w, average, stream_);
  }
}

AveragedWeights::~AveragedWeights() {
  swap_masters();
  params_.refresh_compute(stream_);
}

// Swaps the f32 shards only.
void AveragedWeights::swap_masters() {
  size_t i = 0;
  for (const ParamShard& shard : params_.shards()) {
    const Tensor average = optimizer_.average(i++);
    if (shard.w.dtype == DType::f32) swap(shard.w, average, stream_);
  }
}

}  // namespace ingot
