// How much of what ranks tell each other is hidden behind computing: from a log of the operations of some
// training steps (comm/comm_log.h).
//
// Some of it nothing can hide, whatever the order: sums that decide how the step goes on (loss, norm), the
// gather that a step of shards begins with, the last gradients that backward makes, and the first and last
// round of a distributed Muon. The rest can be. Of operations that take t each in all, of which the caller
// waited for w:  hidden = 1 - (w - u) / (t - u),  u the time of those that nothing can hide.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/comm/comm_log.h"
#include "ingot/config/parallel_config.h"

namespace ingot {

struct Overlap {
  int64_t operations = 0;   // of weights and gradients
  double ran_s = 0;         // in all
  double waited_s = 0;      // of it by the caller
  double unhideable_s = 0;  // at the least
  double decisions_s = 0;   // waits for sums and texts, beside all of this
  double hidden() const;    // in [0, 1]
};

// Of `steps` steps of a layout of replicas and shards.
Overlap measure_overlap(const std::vector<CommLog::Event>& events, const ParallelConfig& layout,
                        int64_t steps);

// The lines of a Chrome trace (JSON array, chrome://tracing or ui.perfetto.dev) of one rank: what it waited
// for, the time between these, and a track for the operations of each group. Without the brackets, and with a
// comma after each.
std::string chrome_trace(const std::vector<CommLog::Event>& events, CommLog::Clock::time_point start,
                         int rank);

}  // namespace ingot
