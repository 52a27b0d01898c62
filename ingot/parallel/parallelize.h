// parallelize() composes the parallel strategies of a run in one place.
#pragma once

#include <functional>
#include <vector>

#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/core/arena.h"
#include "ingot/parallel/stage_plan.h"
#include "ingot/train/layout.h"

namespace ingot {

MeshShape mesh_shape(const ParallelConfig& config);

// Throws a kUsage error that names the nearest layouts unless the config's degrees multiply to `ranks`
// and its pipeline fits the model's units and the step's micro-batches.
void check_layout(const RunConfig& config, int ranks);

// Makes this rank's part of a run and allocates its memory. All ranks of the mesh call it. Borrows the mesh.
// Throws a kUsage error for a config whose products cannot be sharded.
// backing: kAddresses makes a layout for a memory plan. It needs no device, computes nothing and does not
// communicate; where stages or owners of matrices depend on what all ranks together measure or know, it
// uses nominal costs and this rank's numbers for all ranks.
// unit_costs: seconds of the embedding, a block and the head if they are known (measure_unit_costs); if
// empty, stages are cut by what rank 0 measures. extension: operations of a caller's own in every block.
Layout parallelize(const RunConfig& config, Mesh& mesh, Backing backing = Backing::kMemory,
                   const std::vector<double>& unit_costs = {}, const BlockExtension& extension = {});

// Calls f for every rank of a layout, with its mesh, model and store alone. The store has no memory
// (Backing::kAddresses). make_group(rank) returns what makes the groups of a rank of the world.
void for_each_planned_store(const RunConfig& config,
                            const std::function<Mesh::MakeGroup(int rank)>& make_group,
                            const std::function<void(const Layout&, const StagePlan&)>& f);

// The layout of a run on a single rank.
Layout parallelize(const RunConfig& config, Backing backing = Backing::kMemory,
                   const BlockExtension& extension = {});

}  // namespace ingot
