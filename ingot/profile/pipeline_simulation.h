// The lists of pipeline_schedule.h in a simulated communicator: whether they come to an end, when, and how
// much they keep. A receive waits for its message; a send does not wait, but its memory is in use until the
// message was received (no transport buffers less). Activations from one rank to another arrive in the order
// in which they were sent, and so do gradients.
#pragma once

#include <vector>

#include "ingot/parallel/pipeline_schedule.h"

namespace ingot {

struct PipelineCosts {
  std::vector<double> forward_s, backward_s;  // per stage
  double message_s = 0;
};

struct PipelineOutcome {
  double step_s = 0;               // until the last rank is done
  std::vector<double> busy_s;      // per rank: in forward and backward
  std::vector<int64_t> in_flight;  // per rank: the most micro-batches (of a chunk) kept at a time
  // Fraction of the step, on average over the ranks, that was neither.
  double bubble() const;
};

// lists: one per rank. kInternal error naming every waiting rank's operation if they wait for each other for
// ever, or the rank that goes forward or backward out of order, twice, without its input or not at all, or
// keeps more than shape.in_flight.
PipelineOutcome simulate_pipeline(const PipelineShape& shape,
                                  const std::vector<std::vector<PipelineOp>>& lists,
                                  const PipelineCosts& costs);

}  // namespace ingot
