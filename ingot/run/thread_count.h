// How many threads a run computes with.
#pragma once

#include "ingot/config/config.h"

namespace ingot {

// kUsage error if train.threads is more than this machine can make use of: four for each core, though 64 are
// taken anywhere, and 256 is the most.
void require_threads(const TrainConfig& train);

// Sets the number of threads of this process; 0 leaves it as it is. Errors as above.
void use_threads(const TrainConfig& train);

}  // namespace ingot
