// DataShare: which samples of a step a rank computes. A step's samples are the same whatever the number of
// ranks: train.batch_size x micro-batches of them, in the order of data/sampler.h. Its micro-batches are
// dealt out to the ranks; where there are fewer than ranks, ranks share one by rows.
//
// Micro-batch k of a rank has the rows [(k ranks + rank) batch_size, + batch_size) of the step.
#pragma once

#include <cstdint>

#include "ingot/config/config.h"

namespace ingot {

struct DataShare {
  int64_t ranks = 1, rank = 0;
  int64_t batch_size = 1;    // rows of this rank's micro-batches
  int64_t global_batch = 1;  // train.batch_size

  // kUsage error naming the nearest numbers of ranks among which every step of the run can be dealt out.
  static DataShare of(const TrainConfig& config, int64_t ranks, int64_t rank);

  // This rank's micro-batches of a step that has `micros` of global_batch rows.
  int64_t micros(int64_t micros) const { return micros * global_batch / (batch_size * ranks); }
  // The step's row that a rank's micro-batch begins with, and its number among all of the ranks'.
  int64_t first_row(int64_t micro) const { return number(micro) * batch_size; }
  int64_t number(int64_t micro) const { return micro * ranks + rank; }
};

}  // namespace ingot
