// Runs the loop of `ingot watch`, which shows runs until they have ended.
#pragma once

#include "ingot/console/terminal.h"
#include "ingot/watch/run_set.h"

namespace ingot {

struct WatchOptions {
  double every_s = 10;  // between two lines about a run where the output is no terminal
  const std::atomic<bool>* is_stop_requested = nullptr;
};

// Redraws a screen on a terminal, and prints lines elsewhere. Returns when the records of all runs show that
// they have ended: at once for completed runs, and a few seconds later for others, because a supervisor may
// start them again.
//
// Returns 75 if watching was asked to end before that. Otherwise returns 0 if all runs were completed or
// stopped, or the code of the first run that was not: its exit code if it failed, 75 if it was interrupted, 1
// if it died.
int watch_runs(RunSet& runs, Terminal& terminal, const WatchOptions& options);

// Returns the code of one run that has ended, by the same rule.
int exit_code_of(const RunView& run);

}  // namespace ingot
