// Settings that the trainer accepts and with which nothing is trained, such as a clip of 1e-300.
#pragma once

#include <string>
#include <vector>

#include "ingot/config/config.h"

namespace ingot {

// Returns one sentence for each number that is 0 or infinite in the f32 in which it is used, for scales,
// epsilons, clips and rates that make every update vanish, in the groups of the optimizer too, and for
// options of a group that its rule does not have.
std::vector<std::string> idle_settings(const RunConfig& config);

}  // namespace ingot
