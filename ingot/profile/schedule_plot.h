// What a configuration's schedule looks like over the run: learning rate, momentum and batch size.
#pragma once

#include <cstdint>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/formats/svg_plot.h"

namespace ingot {

struct SchedulePoint {
  int64_t step = 0;    // 0-based: what holds in this step
  int64_t tokens = 0;  // taken before it
  double lr = 0;
  double momentum = 0;
  int64_t step_tokens = 0;
};

// At most `count` steps of the run, evenly spread, the first and the last among them. A run with a time
// budget is drawn as if train.steps filled it evenly. REQUIRES: count >= 2.
std::vector<SchedulePoint> schedule_points(const RunConfig& config, int64_t count);

// One plot for each of the three, over the steps.
std::vector<LinePlot> schedule_plots(const RunConfig& config, int64_t count);

}  // namespace ingot
