// The number of threads that a run computes with.
#pragma once

#include "ingot/config/config.h"

namespace ingot {

// Throws a kUsage error if train.threads is more than this machine can use. The limit is four per core, but
// at least 64 and at most 256.
void require_threads(const TrainConfig& train);

// Sets the number of threads of this process; 0 leaves it unchanged. Throws as require_threads does.
void use_threads(const TrainConfig& train);

}  // namespace ingot
