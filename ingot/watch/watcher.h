// The loop of `ingot watch`: shows runs until they have ended.
#pragma once

#include "ingot/console/terminal.h"
#include "ingot/watch/run_set.h"

namespace ingot {

struct WatchOptions {
  double every_s = 10;  // between two lines about a run where the output is no terminal
  const std::atomic<bool>* is_told_to_end = nullptr;
};

// Redraws a screen on a terminal, and prints lines elsewhere. Returns when every run has ended, told by
// its record: at once if it was completed, and otherwise a few seconds later, because a supervisor may start it again.
// Returns 0 if all runs were completed or stopped; otherwise the code of the first that was not: its exit code if it
// failed, 75 if it was interrupted, 1 if it died, and 75 if watching was told to end before.
int watch_runs(RunSet& runs, Terminal& terminal, const WatchOptions& options);

// The part of it that a run that has ended contributes.
int exit_code_of(const RunView& run);

}  // namespace ingot
