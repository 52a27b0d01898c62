#include "ingot/profile/schedule_plot.h"

#include <algorithm>

#include "ingot/config/run_plan.h"
#include "ingot/core/error.h"

namespace ingot {

std::vector<SchedulePoint> schedule_points(const RunConfig& config, int64_t count) {
  INGOT_CHECK(count >= 2, "schedule_points: {} points are fewer than 2", count);
  const RunPlan plan(config);
  const int64_t last = plan.steps() - 1, n = std::min(count, plan.steps());
  std::vector<SchedulePoint> points;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t step =
        n == 1 ? 0
               : static_cast<int64_t>(
                     static_cast<double>(last) * static_cast<double>(i) / static_cast<double>(n - 1) + 0.5);
    const double part = static_cast<double>(step) / static_cast<double>(plan.steps());
    const RunPosition at =
        plan.position(step, plan.ramp().tokens_before(step), part * config.train.max_time_s);
    points.push_back({.step = step,
                      .tokens = at.tokens,
                      .lr = plan.lr(at),
                      .momentum = plan.momentum(at),
                      .step_tokens = at.step_tokens});
  }
  return points;
}

std::vector<LinePlot> schedule_plots(const RunConfig& config, int64_t count) {
  std::vector<LinePlot> plots(3);
  const char* titles[] = {"Learning rate", "Momentum", "Tokens per step"};
  for (size_t i = 0; i < plots.size(); ++i) {
    plots[i].title = titles[i];
    plots[i].x_label = "step";
    plots[i].series.resize(1);
    plots[i].height_px = 260;
    plots[i].includes_zero = i != 1;
  }
  for (const SchedulePoint& point : schedule_points(config, count)) {
    const double values[] = {point.lr, point.momentum, static_cast<double>(point.step_tokens)};
    for (size_t i = 0; i < plots.size(); ++i) {
      plots[i].series[0].x.push_back(static_cast<double>(point.step));
      plots[i].series[0].y.push_back(values[i]);
    }
  }
  return plots;
}

}  // namespace ingot
