// Records what the ranks of a job do in a training step, without computing it: the trainer itself is built
// for every rank and runs a step on addresses without memory (plan/step_record.h).
#pragma once

#include <string>
#include <vector>

#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/plan/step_record.h"

namespace ingot {

// What ranks know of each other that a single one cannot find out.
struct KnownToRanks {
  PlanBoard* board = nullptr;           // borrowed; what the other ranks have told (tell_others)
  std::vector<double> unit_costs = {};  // for the cuts of stages (parallelize)
};

// Returns what makes the groups of a rank for a plan. They are recorded; with a board, the ranks tell each other by it.
// All arguments are borrowed by the groups and by the result.
Mesh::MakeGroup recorded_groups(StepRecorder& recorder, const RunConfig& config, const MeshShape& shape,
                                int rank, PlanBoard* board);

// Returns the operations of one rank in a step whose weights have been used before: not the first step, and
// without the check of the loss (head.raw_ce_every). Needs no other ranks, no device and no data; takes
// milliseconds. config.model.vocab must be set. Throws what the trainer throws for an invalid configuration.
StepRecord record_step(const RunConfig& config, const MeshShape& shape, int rank,
                       const KnownToRanks& known = {});

// Returns the operations of a micro-batch on one rank as text (nn/program/program_text.h), for each chunk of its stage.
std::string text_of_programs(const RunConfig& config, const MeshShape& shape, int rank,
                             const KnownToRanks& known = {});

// Constructs the trainer of a rank and notes what it tells the others meanwhile. What it tells may depend on
// what it hears, so the ranks are called in rounds; two rounds are enough for distributed Muon.
void tell_others(const RunConfig& config, const MeshShape& shape, int rank, const KnownToRanks& known);

// The same for steps that this machine computes for about time_s, on a text of zeros and without the other
// ranks; at least three steps. Times are medians over the steps. REQUIRES: train.device is the CPU.
StepRecord measure_step(const RunConfig& config, const MeshShape& shape, int rank, double time_s,
                        const KnownToRanks& known = {});

}  // namespace ingot
