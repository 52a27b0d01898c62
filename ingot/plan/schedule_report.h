// Shows the outcome of a simulated schedule as a Chrome trace of its ranks.
#pragma once

#include <string>

#include "ingot/plan/schedule_simulation.h"

namespace ingot {

// Returns the lines of a Chrome trace (JSON array, chrome://tracing or ui.perfetto.dev) of one rank, in the
// form of profile/overlap.h: its computation and its waits on one track, and a track for the operations of
// each group. The lines have no brackets, and each ends with a comma. REQUIRES: timeline is of a rank that
// ran `program`.
std::string chrome_trace(const RankTimeline& timeline, const RankProgram& program);

}  // namespace ingot
