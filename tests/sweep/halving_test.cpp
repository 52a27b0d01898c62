// Tests of successive halving on curves that are made up.
#include "ingot/sweep/halving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

namespace ingot {
namespace {

using testing::Each;
using testing::ElementsAre;

// Trains runs to where halving tells them, until nothing is left to do.
struct Training {
  std::vector<HalvingRun> runs;
  double eta = 2;
  std::function<double(size_t run, int64_t step)> curve;
  std::vector<int64_t> trained = {};

  HalvingTargets targets() const {
    return halving_targets(runs, eta, [this](size_t run, int64_t steps) -> std::optional<double> {
      if (trained[run] < steps) return std::nullopt;
      return curve(run, steps);
    });
  }
  // Returns the targets once no run has any. Runs train one after the other, in an order drawn from the seed.
  HalvingTargets train(uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    trained.assign(runs.size(), 0);
    while (true) {
      const HalvingTargets now = targets();
      std::vector<size_t> open;
      for (size_t run = 0; run < runs.size(); ++run)
        if (now.steps[run] > 0) open.push_back(run);
      if (open.empty()) return now;
      const size_t chosen = open[random() % open.size()];
      EXPECT_GT(now.steps[chosen], trained[chosen]);
      trained[chosen] = now.steps[chosen];
    }
  }
};

std::vector<HalvingRun> settings(size_t count, int64_t steps, size_t seeds = 1) {
  std::vector<HalvingRun> runs;
  for (size_t seed = 0; seed < seeds; ++seed)
    for (size_t setting = 0; setting < count; ++setting) runs.push_back({setting, steps});
  return runs;
}

TEST(Halving, RoundsLeaveOneSettingButNoneEndsBeforeTheFirstStep) {
  EXPECT_EQ(halving_rounds(8, 800, 1), 1);
  EXPECT_EQ(halving_rounds(1, 800, 2), 1);
  EXPECT_EQ(halving_rounds(8, 800, 2), 4);
  EXPECT_EQ(halving_rounds(9, 900, 3), 3);
  EXPECT_EQ(halving_rounds(10, 900, 3), 4);
  EXPECT_EQ(halving_rounds(8, 3, 2), 2);
  EXPECT_EQ(halving_rounds(8, 1, 2), 1);
  EXPECT_EQ(end_of_round(800, 0, 4, 2), 100);
  EXPECT_EQ(end_of_round(100, 1, 4, 3), 12);
  EXPECT_EQ(end_of_round(801, 3, 4, 2), 801);
}

TEST(Halving, WithoutItAllTrainToTheirEnd) {
  Training training{settings(5, 100), 1, [](size_t run, int64_t) { return static_cast<double>(run); }};
  const HalvingTargets end = training.train();
  EXPECT_THAT(training.trained, Each(100));
  EXPECT_THAT(end.is_stopped, Each(false));
}

TEST(Halving, TheBestOfEachRoundGoOn) {
  Training training{settings(8, 80), 2, [](size_t run, int64_t) { return static_cast<double>(run); }};
  const HalvingTargets end = training.train();
  EXPECT_THAT(training.trained, ElementsAre(80, 40, 20, 20, 10, 10, 10, 10));
  EXPECT_THAT(end.is_stopped, ElementsAre(false, true, true, true, true, true, true, true));
}

TEST(Halving, CurvesThatCrossAreJudgedAtTheRoundsEnd) {
  // Setting 1 is worse at first and better in the end; it survives because the first round keeps two.
  Training training{settings(4, 40), 2, [](size_t run, int64_t step) {
                      const double s = static_cast<double>(step);
                      return run == 0 ? 3.0 : run == 1 ? 4 - s / 15 : 10.0 + static_cast<double>(run);
                    }};
  training.train();
  EXPECT_THAT(training.trained, ElementsAre(20, 40, 10, 10));
}

TEST(Halving, ASettingsSeedsAreJudgedByTheirMean) {
  // Setting 0 has the best single run, setting 1 the better mean.
  const std::vector<double> loss = {1.0, 2.0, 5.0, 3.0};  // runs: (0, a), (1, a), (0, b), (1, b)
  Training training{settings(2, 40, 2), 2, [&](size_t run, int64_t) { return loss[run]; }};
  training.train();
  EXPECT_THAT(training.trained, ElementsAre(20, 40, 20, 40));
}

TEST(Halving, ADivergedRunIsWorseThanAnyOther) {
  Training training{settings(3, 40), 3,
                    [](size_t run, int64_t) { return run == 0 ? HUGE_VAL : 100.0 + run; }};
  training.train();
  EXPECT_EQ(training.trained[1], 40);
  EXPECT_LT(training.trained[0], 40);
}

TEST(Halving, RunsOfDifferentLengthAreJudgedAfterEqualParts) {
  Training training{{{0, 100}, {1, 1000}}, 2, [](size_t run, int64_t) { return static_cast<double>(run); }};
  training.train();
  EXPECT_THAT(training.trained, ElementsAre(100, 500));
}

TEST(Halving, TheOrderOfRunsDoesNotMatter) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> noise(0, 1);
  for (int round = 0; round < 50; ++round) {
    const size_t count = 2 + random() % 12, seeds = 1 + random() % 3;
    std::vector<double> level(count * seeds);
    for (double& value : level) value = noise(random);
    const double eta = 2 + static_cast<double>(random() % 3);
    Training training{settings(count, 200, seeds), eta, [&](size_t run, int64_t step) {
                        return level[run] + 5 / std::sqrt(static_cast<double>(step));
                      }};
    training.train(1);
    const std::vector<int64_t> first = training.trained;
    training.train(static_cast<uint64_t>(round) + 2);
    EXPECT_EQ(training.trained, first);
    std::set<size_t> finished;
    for (size_t run = 0; run < first.size(); ++run)
      if (first[run] == 200) finished.insert(training.runs[run].setting);
    EXPECT_GE(finished.size(), 1u);
    EXPECT_LE(finished.size(), static_cast<size_t>(eta));
  }
}

}  // namespace
}  // namespace ingot
