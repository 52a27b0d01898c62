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
// board: what the other ranks have told (tell_others); null if nothing.
StepRecord record_step(const RunConfig& config, const MeshShape& shape, int rank, PlanBoard* board = nullptr);

// Constructs the trainer of a rank and notes what it tells the others meanwhile. What it tells may depend on
// what it hears, so the ranks are called in rounds; two rounds are enough for distributed Muon.
void tell_others(const RunConfig& config, const MeshShape& shape, int rank, PlanBoard& board);

// The same for steps that this machine computes for about time_s, on a text of zeros and without the other
// ranks; at least three steps. Times are medians over the steps. REQUIRES: train.device is the CPU.
StepRecord measure_step(const RunConfig& config, const MeshShape& shape, int rank, double time_s);

}  // namespace ingot
