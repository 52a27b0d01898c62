// Measures how much of the communication between ranks is overlapped with computation, from a log of the
// operations of some training steps (comm/comm_log.h).
//
// Some operations cannot be hidden in any order: sums that decide how the step continues (loss, norm), the
// gather at the start of a step with shards, the last gradients of backward, and the first and last round of
// distributed Muon. All others can be hidden. Let t be the time of all operations, w the part of t for which
// the caller waits, and u the time of the operations that cannot be hidden. Then
//   hidden = 1 - (w - u) / (t - u)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/comm/comm_log.h"
#include "ingot/config/parallel_config.h"

namespace ingot {

struct Overlap {
  int64_t operations = 0;   // on weights and gradients
  double ran_s = 0;         // total
  double waited_s = 0;      // of ran_s, spent waiting by the caller
  double unhideable_s = 0;  // lower bound
  double decisions_s = 0;   // waits for sums and texts, not included above
  double hidden() const;    // in [0, 1]
};

// Returns the overlap of `events`, the operations of `steps` steps in a layout of replicas and shards.
Overlap measure_overlap(const std::vector<CommLog::Event>& events, const ParallelConfig& layout,
                        int64_t steps);

// Returns the lines of a Chrome trace (JSON array, chrome://tracing or ui.perfetto.dev) of one rank: its
// waits, the time between them, and a track for the operations of each group. The lines have no brackets,
// and each ends with a comma.
std::string chrome_trace(const std::vector<CommLog::Event>& events, CommLog::Clock::time_point start,
                         int rank);

}  // namespace ingot
