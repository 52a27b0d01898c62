// Seam: the order of work in a step, as a list of operations for one rank that one runner (Trainer) executes.
// Accumulation is the plain list; pipeline schedules are others.
#pragma once

#include <cstdint>
#include <vector>

namespace ingot {

struct MicroOp {
  enum class Kind { kForward, kBackward };
  Kind kind;
  int64_t micro;  // number of the micro-batch within the step
};

// Gradient accumulation on one rank: forward and backward of each micro-batch in turn, so that one set of
// activations serves all.
std::vector<MicroOp> accumulation_schedule(int64_t micros);

}  // namespace ingot
