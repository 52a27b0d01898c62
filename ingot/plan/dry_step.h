// Records what the ranks of a job do in a training step, without computing it: the trainer itself is built
// for every rank and runs a step on addresses without memory (plan/step_record.h).
#pragma once

#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/plan/step_record.h"

namespace ingot {

// Returns the operations of one rank in a step whose weights have been used before: not the first step, and
// without the check of the loss (head.raw_ce_every). Needs no other ranks, no device and no data; takes
// milliseconds. config.model.vocab must be set. Throws what the trainer throws for an invalid configuration.
StepRecord record_step(const RunConfig& config, const MeshShape& shape, int rank);

// The same for a step that this machine computes, on a text of zeros and without the other ranks. The
// operations have the shortest times that they took in `steps` steps. REQUIRES:
// train.device is the CPU.
StepRecord measure_step(const RunConfig& config, const MeshShape& shape, int rank, int steps);

}  // namespace ingot
