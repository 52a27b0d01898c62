// Plots a configuration's schedule over the run: learning rate, momentum and batch size.
#pragma once

#include <cstdint>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/formats/chart/svg_plot.h"

namespace ingot {

struct SchedulePoint {
  int64_t step = 0;    // 0-based; lr, momentum and step_tokens are those of this step
  int64_t tokens = 0;  // consumed before the step
  double lr = 0;
  double momentum = 0;
  int64_t step_tokens = 0;
};

// Returns at most `count` steps of the run, evenly spaced, including the first and the last. A run with a
// time budget is drawn as if train.steps filled it evenly. REQUIRES: count >= 2.
std::vector<SchedulePoint> schedule_points(const RunConfig& config, int64_t count);

// Returns a plot over the steps for each of the three.
std::vector<LinePlot> schedule_plots(const RunConfig& config, int64_t count);

}  // namespace ingot
