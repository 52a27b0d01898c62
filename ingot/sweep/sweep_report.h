// Renders the results of a sweep for people: a plot per key, and report.html.
#pragma once

#include <string>
#include <vector>

#include "ingot/formats/chart/svg_plot.h"
#include "ingot/sweep/sweep_files.h"

namespace ingot {

// Returns one plot per varied key: the mean validation loss over the key's values with 95 % intervals over
// the seeds, and a line for each setting of the other keys. Of more than six lines, it draws those with the
// lowest losses.
std::vector<LinePlot> sweep_plots(const SweepSpec& spec, const SweepResult& result);

std::string sweep_report(const SweepRecord& record, const std::vector<SweepRun>& runs,
                         const std::vector<RunResult>& results);

}  // namespace ingot
