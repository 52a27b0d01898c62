// Chooses the budget for activations.policy = "auto" without activations.budget: the backward pass keeps all
// activations if they fit into the memory of the device, and otherwise as many as fit.
#pragma once

#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/memory/memory_check.h"

namespace ingot {

// Returns config.activations, with a budget if the run has none and does not fit without one. The budget is
// the largest multiple of an eighth of all activations that fits. The result is unchanged if everything fits,
// if no budget helps (check_memory then reports it), and for every other configuration. All ranks must call
// it; all get the same result.
RecomputeConfig with_activation_budget(const RunConfig& config, const Mesh& mesh, const MemoryLimits& limits);

}  // namespace ingot
