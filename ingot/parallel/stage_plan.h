// StagePlan says which units of a model are on which rank of a pipeline. A stage is a range of
// consecutive units; rank r of p has the stages r, p + r, 2p + r, ... (its chunks).
#pragma once

#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/nn/transformer.h"

namespace ingot {

struct StagePlan {
  std::vector<int> first_units = {};  // first unit of each stage, then the number of units
  int ranks = 1;
  bool is_tied = false;  // the head reads the embedding's table, so the last rank holds it too

  int stages() const { return static_cast<int>(first_units.size()) - 1; }
  int chunks() const { return stages() / ranks; }
  UnitRange units(int rank, int chunk) const;
  // Returns the rank that holds the unit's stage.
  int owner(int unit) const;
  bool keeps(int rank, int unit) const;
  // Returns true for the embedding's unit of a tied model, which both the first and the last rank hold.
  bool is_shared(int unit) const { return is_tied && unit == 0 && ranks > 1; }
  std::string to_string() const;  // "units 0-2 | 3-5", the units of each stage
};

// Splits the model's units into parallel.pp * parallel.chunks stages so that the most expensive stage is
// as cheap as possible. costs: of the embedding, one block and the head. Throws a kUsage error if there
// are fewer units than stages.
StagePlan plan_stages(const ModelConfig& model, const ParallelConfig& parallel,
                      const std::vector<double>& costs);

// Measures the seconds of forward and backward of the embedding, one block and the head of a resolved
// model, on B rows of the context, on the stream and on this rank only; each is the median of three. tp: the
// tensor-parallel size whose shard of the products is measured.
std::vector<double> measure_unit_costs(const RunConfig& config, const ModelConfig& model, int64_t B, int tp,
                                       Stream& stream);
// Measures the ops of one block in the same way.
BlockTimes measure_block_times(const RunConfig& config, const ModelConfig& model, int64_t B, int tp,
                               Stream& stream);
// Same as measure_unit_costs, but in multiply-adds per token; used if nothing may be measured.
std::vector<double> nominal_unit_costs(const ModelConfig& model);

}  // namespace ingot
