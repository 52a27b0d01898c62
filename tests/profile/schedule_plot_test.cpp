// Compares the schedule that `ingot schedule` draws with the one that a run logs.
#include "ingot/profile/schedule_plot.h"

#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

using SchedulePlot = TrainingTest;

TEST_F(SchedulePlot, IsTheScheduleThatRuns) {
  const RunConfig c = ramped();
  train(c, folder / "run");
  const std::vector<MetricsRow> rows = steps_of(folder / "run");
  const std::vector<SchedulePoint> points = schedule_points(c, 1000);
  ASSERT_EQ(points.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(points[i].step + 1, rows[i].number("step"));
    EXPECT_EQ(points[i].lr, rows[i].number("lr"));
    EXPECT_EQ(static_cast<double>(points[i].step_tokens), rows[i].number("step_tokens"));
  }
  const std::vector<SchedulePoint> few = schedule_points(c, 5);
  ASSERT_EQ(few.size(), 5u);
  EXPECT_EQ(few.front().step, 0);
  EXPECT_EQ(few.back().step, 39);
  EXPECT_EQ(schedule_plots(c, 5).size(), 3u);
}

}  // namespace
}  // namespace ingot
