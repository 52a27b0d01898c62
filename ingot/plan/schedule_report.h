// Shows the outcome of a simulated schedule: as a table, and as a Chrome trace of its ranks.
#pragma once

#include <string>

#include "ingot/plan/schedule_simulation.h"

namespace ingot {

// Returns a table of the step's time and of its busy, exposed and idle parts (the mean, and the ranks with
// the least and the most idle time). For each kind of operation it has the count, the bytes, the time per
// rank and the hidden part of that time. title: "1F1B, 8 ranks".
std::string schedule_table(const ScheduleOutcome& outcome, const std::string& title);

// Returns the lines of a Chrome trace (JSON array, chrome://tracing or ui.perfetto.dev) of one rank, in the
// form of profile/overlap.h: its computation and its waits on one track, and a track for the operations of
// each group. The lines have no brackets, and each ends with a comma. REQUIRES: timeline is of a rank that
// ran `program`.
std::string chrome_trace(const RankTimeline& timeline, const RankProgram& program);

}  // namespace ingot
