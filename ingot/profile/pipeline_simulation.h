// Runs the lists of pipeline_schedule.h in a simulated communicator, to find whether they finish, when, and
// how much memory they hold. A receive waits for its message; a send does not wait, but its memory is in
// use until the message was received (real transports may buffer more, never less). Activations from one
// rank to another arrive in the order in which they were sent, and so do gradients.
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
  std::vector<double> busy_s;      // per rank: time in forward and backward
  std::vector<int64_t> in_flight;  // per rank: the most micro-batches (of a chunk) held at once
  // Fraction of the step that is neither, averaged over the ranks.
  double bubble() const;
};

// lists: one per rank. Throws a kInternal error if the ranks wait for each other forever (it names each
// rank's operation), or if a rank runs forward or backward out of order, twice, without its input or not at
// all, or holds more than shape.in_flight.
PipelineOutcome simulate_pipeline(const PipelineShape& shape,
                                  const std::vector<std::vector<PipelineOp>>& lists,
                                  const PipelineCosts& costs);

}  // namespace ingot
