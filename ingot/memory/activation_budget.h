// activations.policy = "auto" without activations.budget, on a device: everything is kept for backward where its
// memory allows, and otherwise as much as it allows.
#pragma once

#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/memory/memory_check.h"

namespace ingot {

// Returns config.activations with a budget if the run has none and does not fit without one: the largest of the
// eighths of what keeping everything takes. The result is unchanged if everything fits, if no budget helps
// (check_memory then says so), and for every other configuration. All ranks must call it; all get the same.
RecomputeConfig with_activation_budget(const RunConfig& config, const Mesh& mesh, const MemoryLimits& limits);

}  // namespace ingot
