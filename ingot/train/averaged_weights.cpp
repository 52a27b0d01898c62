#include "ingot/train/averaged_weights.h"

#include <algorithm>

#include "ingot/ops/cast.h"

namespace ingot {

AveragedWeights::AveragedWeights(ResidentStore& params, const Optimizer& optimizer, Stream& stream)
    : params_(params), optimizer_(optimizer), stream_(stream) {
  params_.expand_masters();
  swap_masters();
  if (params_.masters() == Masters::kF32) params_.refresh_compute(stream_);
  for (int id = 0; id < static_cast<int>(params_.list().specs().size()); ++id) {
    const Tensor average = optimizer_.average(static_cast<size_t>(id));
    if (!has_master(id)) cast(params_.weight(id), average.reshape(params_.weight(id).shape), stream_);
  }
}

AveragedWeights::~AveragedWeights() {
  swap_masters();
  params_.refresh_compute(stream_);
}

bool AveragedWeights::has_master(int id) const {
  return params_.masters() == Masters::kF32 || params_.list()[id].is_vector();
}

void AveragedWeights::swap_masters() {
  for (int id = 0; id < static_cast<int>(params_.list().specs().size()); ++id) {
    if (!has_master(id)) continue;
    const Tensor w = params_.master(id);
    std::swap_ranges(w.as<float>(), w.as<float>() + w.elements(),
                     optimizer_.average(static_cast<size_t>(id)).as<float>());
  }
}

}  // namespace ingot
