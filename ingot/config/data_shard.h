// DataShard says which samples of a step a rank computes. The samples of a step do not depend on the
// number of ranks: they are train.batch_size x micro-batches samples in the order of data/sampler.h. The
// micro-batches are divided among the ranks; if there are fewer micro-batches than ranks, several ranks
// split one by rows.
//
// Micro-batch k of a rank has the rows [(k ranks + rank) batch_size, + batch_size) of the step.
#pragma once

#include <cstdint>

#include "ingot/config/config.h"

namespace ingot {

struct DataShard {
  int64_t ranks = 1, rank = 0;
  int64_t batch_size = 1;    // rows of a micro-batch on this rank
  int64_t global_batch = 1;  // train.batch_size

  // kUsage error, naming the nearest valid numbers of ranks, if some step of the run cannot
  // be divided evenly.
  static DataShard of(const TrainConfig& config, int64_t ranks, int64_t rank);

  // Returns this rank's number of micro-batches in a step that has `micros` of global_batch rows.
  int64_t micros(int64_t micros) const { return micros * global_batch / (batch_size * ranks); }
  // first_row: the first row of this rank's micro-batch in the step. number: its index over all ranks.
  int64_t first_row(int64_t micro) const { return number(micro) * batch_size; }
  int64_t number(int64_t micro) const { return micro * ranks + rank; }
};

}  // namespace ingot
