// What a sweep shows to people: a plot per key, and report.html.
#pragma once

#include <string>
#include <vector>

#include "ingot/formats/chart/svg_plot.h"
#include "ingot/sweep/sweep_files.h"

namespace ingot {

// One plot per varied key: the mean validation loss over its values with 95 % intervals over the seeds, a line for each
// setting of the other keys. Of more than six lines, it draws those with the lowest losses.
std::vector<LinePlot> sweep_plots(const SweepSpec& spec, const SweepResult& result);

std::string sweep_report(const SweepRecord& record, const std::vector<SweepRun>& runs,
                         const std::vector<RunResult>& results);

}  // namespace ingot
