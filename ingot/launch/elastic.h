// Elastic restarts: the layout of a run for fewer ranks than it was configured for.
#pragma once

#include <optional>

#include "ingot/config/config.h"

namespace ingot {

// Returns the layout with the most ranks, at most `ranks`, that differs from the configured one only in the
// number of replicas (parallel.dp) or, if one replica is still too many, of their shards (parallel.fsdp).
// Tensor parallelism and stages stay, and every step must divide evenly. nullopt if there is none.
std::optional<ParallelConfig> layout_for(const RunConfig& config, int ranks);

}  // namespace ingot
