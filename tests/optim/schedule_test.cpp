#include "ingot/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ingot/core/error.h"

namespace ingot {
namespace {

constexpr ScheduleConfig kNanoGpt{
    .kind = ScheduleKind::kCosine, .warmup_steps = 100, .floor = 0.1, .decay_steps = 2000};

TEST(Schedule, NanoGptsNumbers) {
  EXPECT_DOUBLE_EQ(schedule_at_step(kNanoGpt, 0, 2000), 1.0 / 101);
  EXPECT_DOUBLE_EQ(schedule_at_step(kNanoGpt, 99, 2000), 100.0 / 101);
  EXPECT_DOUBLE_EQ(schedule_at_step(kNanoGpt, 100, 2000), 1.0);
  EXPECT_DOUBLE_EQ(schedule_at_step(kNanoGpt, 1050, 2000), 0.55);
  EXPECT_DOUBLE_EQ(schedule_at_step(kNanoGpt, 2000, 2000), 0.1);
  EXPECT_DOUBLE_EQ(schedule_at_step(kNanoGpt, 5000, 2000), 0.1);
}

TEST(Schedule, StaysInBoundsAndFallsOnceWarm) {
  for (ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kCosine, ScheduleKind::kLinear})
    for (int64_t warmup : {0, 1, 7, 50}) {
      const ScheduleConfig config{.kind = kind, .warmup_steps = warmup, .floor = 0.05, .decay_steps = 0};
      double before = 0;
      for (int64_t step = 0; step < 220; ++step) {
        const double now = schedule_at_step(config, step, 200);
        ASSERT_GE(now, step < warmup ? 0.0 : 0.05 - 1e-12);
        ASSERT_LE(now, 1.0);
        ASSERT_LE(std::abs(now - before), 1.0 / static_cast<double>(warmup + 1) + 0.02)
            << "a jump at " << step;
        if (step > warmup) {
          ASSERT_LE(now, before + 1e-12);
        }
        before = now;
      }
      EXPECT_NEAR(before, kind == ScheduleKind::kConstant ? 1.0 : 0.05, 1e-12);
    }
}

TEST(Schedule, FollowsTheClock) {
  EXPECT_DOUBLE_EQ(schedule_at_progress(kNanoGpt, 500, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(schedule_at_progress(kNanoGpt, 500, 0.5), 0.55);
  EXPECT_DOUBLE_EQ(schedule_at_progress(kNanoGpt, 500, 1.5), 0.1);
  EXPECT_DOUBLE_EQ(schedule_at_progress(kNanoGpt, 0, 0.0), 1.0 / 101);
}

TEST(Schedule, RefusesImpossibleValues) {
  EXPECT_THROW(
      (ScheduleConfig{.kind = ScheduleKind::kCosine, .warmup_steps = -1, .floor = 0.1, .decay_steps = 0}
           .validate()),
      Error);
  EXPECT_THROW(
      (ScheduleConfig{.kind = ScheduleKind::kCosine, .warmup_steps = 0, .floor = 1.5, .decay_steps = 0}
           .validate()),
      Error);
}

}  // namespace
}  // namespace ingot
