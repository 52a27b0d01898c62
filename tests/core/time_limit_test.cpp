// Tests of how long ranks may wait for each other with parallel.timeout = "auto". The tests use no clock: the
// caller passes the duration of each phase.
#include "ingot/core/time_limit.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

using Phase = TimeLimit::Phase;

void step(TimeLimit& limit, double seconds, int64_t micro_batches = 1) {
  limit.begin(Phase::kStep, micro_batches);
  limit.end(seconds);
}

TEST(TimeLimit, IsGenerousUntilTheFirstStepIsDone) {
  TimeLimit limit;
  EXPECT_EQ(limit.seconds(), 600);
  EXPECT_TRUE(limit.is_paused());
  limit.begin(Phase::kStep);
  EXPECT_EQ(limit.seconds(), 600);
  EXPECT_FALSE(limit.is_paused());
  limit.end(0.1);
  limit.begin(Phase::kStep);
  EXPECT_EQ(limit.seconds(), 5);
}

TEST(TimeLimit, OfAStepIsFiveMediansAndAtLeastFiveSeconds) {
  TimeLimit limit;
  for (const double seconds : {90.0, 2.0, 3.0, 2.5, 4.0}) step(limit, seconds);  // the first step was slow
  limit.begin(Phase::kStep);
  EXPECT_DOUBLE_EQ(limit.seconds(), 15);
  for (int i = 0; i < 40; ++i) step(limit, 0.01);
  limit.begin(Phase::kStep);
  EXPECT_DOUBLE_EQ(limit.seconds(), 5);
}

TEST(TimeLimit, OfAStepGrowsWithItsMicroBatches) {
  TimeLimit limit;
  for (int i = 0; i < 3; ++i) step(limit, 2, 4);
  limit.begin(Phase::kStep, 16);
  EXPECT_DOUBLE_EQ(limit.seconds(), 40);
}

// An evaluation of 20 minutes between steps of milliseconds does not mean that a rank hangs.
TEST(TimeLimit, LetsEvaluationSamplesAndCheckpointsTakeLong) {
  TimeLimit limit;
  for (int i = 0; i < 10; ++i) step(limit, 0.01);
  for (const Phase phase : {Phase::kEvaluation, Phase::kSampling, Phase::kSaving}) {
    limit.begin(phase);
    EXPECT_EQ(limit.seconds(), 600);
    EXPECT_TRUE(limit.is_paused());
    limit.end(2);
    step(limit, 0.01);
    limit.begin(phase);
    EXPECT_EQ(limit.seconds(), 60) << "it was short before";
    limit.end(1200);
    EXPECT_EQ(limit.seconds(), 60) << "until the next phase begins, for ranks that are still at this one";
    step(limit, 0.01);
    limit.begin(phase);
    EXPECT_DOUBLE_EQ(limit.seconds(), 6000);
    limit.end(1);
    limit.begin(phase);
    EXPECT_DOUBLE_EQ(limit.seconds(), 6000) << "by the longest so far";
    limit.end(1);
  }
  limit.begin(Phase::kStep);
  EXPECT_DOUBLE_EQ(limit.seconds(), 5);
}

TEST(TimeLimit, GivenByTheUserHoldsInEveryPhase) {
  TimeLimit limit(2.0);
  EXPECT_TRUE(limit.is_fixed());
  step(limit, 100);
  for (const Phase phase : {Phase::kStep, Phase::kEvaluation, Phase::kSaving, Phase::kEnd}) {
    limit.begin(phase);
    EXPECT_EQ(limit.seconds(), 2);
    limit.end(100);
  }
}

}  // namespace
}  // namespace ingot
