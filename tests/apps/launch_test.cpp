// Tests of the program on several ranks, started as a user starts it: with mpirun and no other
// preparation.
#include <algorithm>

#include "tests/apps/launch_fixture.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(LaunchTest, EveryLayoutFollowsTheLossCurveOfOneRank) {
  const std::string steps = "--set train.steps=12 --set eval.every=6 ";
  const Outcome one = bash(std::string(INGOT_PROGRAM) + " " + train("one", steps));
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const std::vector<double> want = losses("one");
  ASSERT_EQ(want.size(), 12u);
  for (const std::string layout : {"dp", "fsdp", "pp"}) {
    const Outcome two = bash("run 2 " + train(layout, steps + "--set parallel." + layout + "=2"));
    ASSERT_EQ(two.exit_code, 0) << two.output;
    EXPECT_THAT(two.output,
                AllOf(HasSubstr("ranks 2: " + layout + "=2"), HasSubstr("completed after 12 steps")));
    const std::vector<double> got = losses(layout);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6 * want[i]) << layout << i;
    EXPECT_THAT(read_file(folder_ / layout / "ranks/1/train.log"), HasSubstr("completed after 12 steps"));
  }
}

// A pipelined run generates samples and reports its bubble, and a run without pipelining can resume it.
TEST_F(LaunchTest, StagesTrainSaveAndResume) {
  const Outcome outcome = bash("run 4 " + train("run",
                                                "--set train.steps=12 --set sample.count=1 "
                                                "--set sample.tokens=8 --set checkpoint.every=3 "
                                                "--set parallel.pp=2 --set parallel.dp=2 "
                                                "--set train.grad_accum=4 --set train.stop_at=4"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("stages 1f1b, units 0-"), HasSubstr("pipeline: ranks waited for stages for "),
                    HasSubstr("(p-1)/(vm+p-1) = 33.3%")));
  EXPECT_TRUE(std::ranges::any_of(read_metrics(folder_ / "run/metrics.jsonl"),
                                  [](const MetricsRow& row) { return row.number("bubble").has_value(); }));
  const Outcome resumed = bash(std::string(INGOT_PROGRAM) + " train --resume --out " + path("run") +
                               " --set parallel.dp=1 --set parallel.pp=1");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(losses("run").size(), 12u);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/samples/step-000000012.txt"));
}

// All ranks of a run with a time budget use one clock, so they stop after the same step.
TEST_F(LaunchTest, ATimeBudgetEndsOnAllRanksAtOnce) {
  const Outcome outcome = bash("run 2 " + train("run", "--set train.max_time=2s --set parallel.dp=2"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("completed after"));
  const size_t steps = losses("run").size();
  EXPECT_GT(steps, 0u);
  EXPECT_EQ(losses("run/ranks/1").size(), steps);
}

TEST_F(LaunchTest, AWrongLayoutIsRefusedWithOneThatFits) {
  const Outcome more = bash("run 2 " + train("a", ""));
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_THAT(more.output, HasSubstr("dp=1 needs 1 rank, but 2 were started"));
  EXPECT_THAT(more.output, HasSubstr("what fits 2 is dp=2"));
  const Outcome fewer = bash(std::string(INGOT_PROGRAM) + " " + train("b", "--set parallel.dp=2"));
  EXPECT_EQ(fewer.exit_code, 2);
  EXPECT_THAT(fewer.output, HasSubstr("dp=2 needs 2 ranks, but 1 was started; start it with mpirun -n 2"));
  const Outcome uneven = bash("run 3 " + train("c", "--set parallel.dp=3"));
  EXPECT_EQ(uneven.exit_code, 2);
  EXPECT_THAT(uneven.output, HasSubstr("cannot be dealt out to 3 ranks"));
  EXPECT_THAT(uneven.output, HasSubstr("the nearest that can are 2 or 4"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "c"));
}

const char* const kLong = "--set train.steps=100000 --set checkpoint.every=5 --set parallel.dp=2 ";

TEST_F(LaunchTest, ASignalSavesOnAllRanksAndTheRunResumesOnOne) {
  const Outcome outcome =
      bash(disturbed(train("run", kLong), path("run"), "kill -TERM $rank"));  // signals one rank only
  EXPECT_EQ(outcome.exit_code, 75) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("interrupted and saved"));
  const size_t steps = losses("run").size();
  const std::string more = " --set parallel.dp=1 --set train.stop_at=" + std::to_string(steps + 3);
  const Outcome resumed = bash(std::string(INGOT_PROGRAM) + " train --resume --out " + path("run") + more);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(losses("run").size(), steps + 3);
}

// Every rank finds that the text is too short; the message of the first one ends the run.
TEST_F(LaunchTest, AnErrorEndsAllRanksWithItsExitCode) {
  write_file(folder_ / "text.txt", "short");
  const Outcome outcome = bash("run 2 " + train("run", "--set parallel.dp=2"));
  EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("rank 0 of 2: "));
}

}  // namespace
}  // namespace ingot
