// Makes the programs of all ranks of a job in a step from recordings of the ranks that differ.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/plan/dry_step.h"
#include "ingot/plan/op_costs.h"
#include "ingot/plan/rank_program.h"
#include "ingot/plan/step_record.h"

namespace ingot {

// The recordings of a job.
struct JobRecord {
  MeshShape shape;
  std::vector<int> class_of;        // rank -> index into records
  std::vector<int> ranks;           // class -> its first rank
  std::vector<StepRecord> records;  // class -> what its ranks do
};

// Returns for each rank the number of its class; a class begins at its first rank. The ranks of a class do
// the same work: those of one stage, or single ranks where the owners of whole matrices (distributed Muon)
// differ.
std::vector<int> rank_classes(const RunConfig& config, const MeshShape& shape);

// Collects on known.board the inputs of all ranks on which their work depends. Does nothing unless
// distributed Muon divides whole matrices.
void tell_all_ranks(const RunConfig& config, const MeshShape& shape, const KnownToRanks& known);

// Records a step of every class. config.model.vocab must be set. unit_costs: as in KnownToRanks.
JobRecord record_job(const RunConfig& config, const std::vector<double>& unit_costs = {});

// Returns the operations of a micro-batch on the first rank of every stage as text
// (nn/program/program_text.h). config.model.vocab must be set.
std::string programs_text(const RunConfig& config);

// costs: those of the ranks of a class.
RankPrograms make_programs(const JobRecord& job, const std::function<const OpCosts&(int rank_class)>& costs);

// Returns the computing time of a record by part ("forward block", "optimizer"), in seconds: the names of its
// operations without the numbers of blocks.
std::map<std::string, double> time_by_part(const StepRecord& record, const OpCosts& costs);

}  // namespace ingot
