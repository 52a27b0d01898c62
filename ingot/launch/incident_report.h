// Describes a run's incidents in words, for `ingot status` and `ingot doctor`.
#pragma once

#include <string>
#include <vector>

#include "ingot/launch/incident.h"

namespace ingot {

// "3 incidents (2 killed, 1 hang): 12 steps made again, 4.8 s without a step; the last: rank 3 on node7 was
// killed at step 120: signal 9 (SIGKILL)"; empty if there are none.
std::string incident_summary(const std::vector<Incident>& incidents);

// Returns advice, one sentence each: a pattern that the incidents have in common, and what to do about it.
std::vector<std::string> incident_advice(const std::vector<Incident>& incidents);

}  // namespace ingot
