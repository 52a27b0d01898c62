#include "ingot/checkpoint/save_schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace ingot {
namespace {

TEST(SaveSchedule, SavesBySteps) {
  SaveSchedule schedule(20, 0);
  EXPECT_FALSE(schedule.reads_clock());
  EXPECT_FALSE(schedule.is_due(19, 1e6));
  EXPECT_TRUE(schedule.is_due(20, 1));
  schedule.saved(1);
  EXPECT_FALSE(schedule.is_due(21, 1e6));
  EXPECT_TRUE(schedule.is_due(40, 2));
}

TEST(SaveSchedule, SavesByTimeSinceTheLastSave) {
  SaveSchedule schedule(100, 600);
  EXPECT_TRUE(schedule.reads_clock());
  EXPECT_FALSE(schedule.is_due(1, 599));
  EXPECT_TRUE(schedule.is_due(1, 600));
  schedule.saved(605);
  EXPECT_FALSE(schedule.is_due(2, 1204));
  EXPECT_TRUE(schedule.is_due(100, 700)) << "its step has come";
  schedule.saved(700);
  EXPECT_FALSE(schedule.is_due(101, 1299));
  EXPECT_TRUE(schedule.is_due(101, 1300));
}

TEST(SaveSchedule, SavesNothingWithBothOff) {
  const SaveSchedule schedule(0, 0);
  EXPECT_FALSE(schedule.reads_clock());
  EXPECT_FALSE(schedule.is_due(0, 0));
  EXPECT_FALSE(schedule.is_due(1'000'000, 1e9));
}

TEST(SaveSchedule, PausesAfterFailuresDoubleUpToTenMinutes) {
  SaveSchedule schedule(10, 600);
  double now_s = 100;
  for (const double pause_s : std::vector<double>{30, 60, 120, 240, 480, 600, 600}) {
    EXPECT_EQ(schedule.failed(now_s), pause_s);
    EXPECT_TRUE(schedule.reads_clock());
    EXPECT_FALSE(schedule.is_due(10, now_s)) << "neither a step nor the clock comes before the pause is over";
    EXPECT_FALSE(schedule.is_due(10, now_s + pause_s - 0.01));
    now_s += pause_s;
    EXPECT_TRUE(schedule.is_due(11, now_s)) << "at any step";
  }
  schedule.saved(now_s);
  EXPECT_FALSE(schedule.is_due(11, now_s + 599));
  EXPECT_EQ(schedule.failed(now_s + 600), 30) << "a success forgets the failures before it";
}

// A failed save is retried by the clock even if no saves are scheduled by time.
TEST(SaveSchedule, RetriesWithoutEveryMinutes) {
  SaveSchedule schedule(10, 0);
  schedule.failed(0);
  EXPECT_TRUE(schedule.reads_clock());
  EXPECT_FALSE(schedule.is_due(20, 29));
  EXPECT_TRUE(schedule.is_due(13, 30));
}

}  // namespace
}  // namespace ingot
