#include "ingot/train/trainer_parts.h"

namespace ingot {

TrainingStore& TrainerParts::make_store(const ParamList& list, const RunConfig& config, Stream& stream) {
  store_ = std::make_unique<ResidentStore>(list, config.precision.compute, true, config.precision.master,
                                           config.train.device, stream.backing);
  return *store_;
}

}  // namespace ingot
