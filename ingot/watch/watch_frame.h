// Renders the display of `ingot watch` as plain text. Texts from files pass through visible_line, so that
// they cannot control the terminal.
#pragma once

#include <cstdint>
#include <string>

#include "ingot/watch/run_set.h"

namespace ingot {

struct FrameSize {
  int columns = 80, rows = 24;
};

// Returns the status line of a run, not cut to any width:
// "runs/a  running  step 120/2000 6.0% | loss 2.3145 | val 2.4110 | 138.9k tok/s | mfu 41.2% | norm 0.91 |
// lr 3.0e-4 | 310 MB | about 3m41s left".
std::string watch_line(const RunView& run, int64_t now_s);

// Returns the runs' lines, a plot of their losses, and the newest sample of the first run, in at most
// size.rows lines of at most size.columns cells. If they do not fit, the sample is left out first, then the
// plot, then runs.
std::string watch_frame(RunSet& runs, const FrameSize& size, int64_t now_s);

// Returns the first code points of the text that take at most `cells`, "..." at their end if some are left
// out.
std::string fit_cells(const std::string& text, int cells);

}  // namespace ingot
