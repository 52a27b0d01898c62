// Records the operations of the ranks of a job in a training step without computing them. The real trainer is
// built for every rank and runs a step on addresses without memory (plan/step_record.h).
#pragma once

#include <string>
#include <vector>

#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/plan/step_record.h"

namespace ingot {

// KnownToRanks holds what a rank knows of the others and cannot find out alone.
struct KnownToRanks {
  PlanBoard* board = nullptr;           // borrowed; the inputs of the other ranks (tell_others); may be null
  std::vector<double> unit_costs = {};  // for the cuts of stages (parallelize)
};

// Returns the function that makes the groups of a rank for a plan. The recorder records their operations.
// With a board, the ranks exchange their inputs through it. The groups and the result borrow all arguments.
Mesh::MakeGroup recorded_groups(StepRecorder& recorder, const RunConfig& config, const MeshShape& shape,
                                int rank, PlanBoard* board);

// Returns the operations of one rank in a step whose weights have been used before: not the first step, and
// without the check of the loss (head.raw_ce_every). Needs no other ranks, no device and no data; takes
// milliseconds. config.model.vocab must be set. Throws what the trainer throws for an invalid configuration.
StepRecord record_step(const RunConfig& config, const MeshShape& shape, int rank,
                       const KnownToRanks& known = {});

// Returns the operations of a micro-batch on one rank as text (nn/program/program_text.h), for each chunk of
// its stage.
std::string text_of_programs(const RunConfig& config, const MeshShape& shape, int rank,
                             const KnownToRanks& known = {});

// Constructs the trainer of a rank and notes on known.board what the rank sends to the others meanwhile. This
// may depend on what it receives, so the caller calls it for all ranks in rounds; two rounds are enough for
// distributed Muon.
void tell_others(const RunConfig& config, const MeshShape& shape, int rank, const KnownToRanks& known);

// Returns the same record of steps that this machine really computes, for about time_s seconds and at least
// three steps, on a text of zeros and without the other ranks. Times are medians over the steps. REQUIRES:
// train.device is the CPU.
StepRecord measure_step(const RunConfig& config, const MeshShape& shape, int rank, double time_s,
                        const KnownToRanks& known = {});

}  // namespace ingot
