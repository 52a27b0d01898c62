// The order of the micro-batches in a step, as a list of operations for one rank that the Trainer
// executes. Pipeline schedules have a list of their own (parallel/pipeline_schedule.h).
#pragma once

#include <cstdint>
#include <vector>

namespace ingot {

struct MicroOp {
  enum class Kind { kForward, kBackward };
  Kind kind;
  int64_t micro;  // index of the micro-batch in the step
};

// Gradient accumulation on one rank: forward and backward of each micro-batch in turn, so they all share
// one set of activations.
std::vector<MicroOp> accumulation_schedule(int64_t micros);

}  // namespace ingot
