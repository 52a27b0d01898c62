// StagePlan: which units of a model are on which rank of a pipeline. Consecutive units make a stage; rank r
// of p has the stages r, p + r, 2p + r, ... (its chunks).
#pragma once

#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/nn/transformer.h"

namespace ingot {

struct StagePlan {
  std::vector<int> first_units = {};  // of each stage, and the number of units
  int ranks = 1;
  bool is_tied = false;  // the head reads the embedding's table, so the last stage keeps that unit too

  int stages() const { return static_cast<int>(first_units.size()) - 1; }
  int chunks() const { return stages() / ranks; }
  UnitRange units(int rank, int chunk) const;
  // The rank that has the unit's stage.
  int owner(int unit) const;
  bool keeps(int rank, int unit) const;
  // Of a tied model, the first and the last rank have the embedding's unit both.
  bool is_shared(int unit) const { return is_tied && unit == 0 && ranks > 1; }
  std::string to_string() const;  // "units 0-2 | 3-5": of each stage
};

// The units of the model to parallel.pp * parallel.chunks stages, so that the dearest is as cheap as can be.
// costs: of the embedding, one block and the head. kUsage error if there are fewer units than stages.
StagePlan plan_stages(const ModelConfig& model, const ParallelConfig& parallel,
                      const std::vector<double>& costs);

// Seconds of forward and backward of the embedding, one block and the head of a resolved model on B rows of
// the context, on this rank alone, each the median of three. tp: the size of the parts of products that it
// computes.
std::vector<double> measure_unit_costs(const RunConfig& config, const ModelConfig& model, int64_t B, int tp);
// The same in multiply-adds per token, where nothing may be measured.
std::vector<double> nominal_unit_costs(const ModelConfig& model);

}  // namespace ingot
