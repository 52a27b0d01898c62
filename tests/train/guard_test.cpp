// Tests the spike detector as a function, and the verdicts of the guard.
#include "ingot/train/guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "ingot/core/philox.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double normal(uint64_t seed, uint64_t i) {
  return static_cast<double>(
      normal_block({.seed = seed, .purpose = Purpose::kSample, .stream = 0, .step = 0}, i / 4)[i % 4]);
}

// Computes the score with the median and the MAD from sorted copies.
double plain_score(std::vector<double> window, double x) {
  std::ranges::sort(window);
  const double median = window[window.size() / 2];
  std::vector<double> away;
  for (double v : window) away.push_back(std::abs(v - median));
  std::ranges::sort(away);
  return (x - median) / std::max(1.4826 * away[away.size() / 2], 0.001 * std::abs(median));
}

TEST(SpikeDetector, FollowsTheFormula) {
  SpikeDetector detector(16);
  std::vector<double> all;
  for (uint64_t i = 0; i < 60; ++i) {
    const double x = 3 + 0.1 * normal(1, i);
    if (i >= 16) {
      const std::vector<double> window(all.end() - 16, all.end());
      ASSERT_NEAR(detector.score(x), plain_score(window, x), 1e-12) << i;
    }
    detector.add(x);
    all.push_back(x);
  }
  EXPECT_EQ(detector.values(), std::vector<double>(all.end() - 16, all.end()));
}

// Returns the steps at which a guard reports a rise of these norms.
std::vector<size_t> reported_rises(Guard& guard, std::span<const double> norms) {
  std::vector<size_t> steps;
  for (size_t i = 0; i < norms.size(); ++i) {
    StepResult result;
    result.loss = 3;
    result.grad_norm = norms[i];
    const Verdict verdict = guard.judge(result);
    EXPECT_TRUE(verdict.is_accepted());
    if (verdict.event == "norm_rise") steps.push_back(i);
  }
  return steps;
}

TEST(NormRise, IsTheRatioOfTheMediansOfTheHalves) {
  Guard guard({.spike_window = 8});
  const std::vector<double> norms = {9, 1, 2, 3, 4, 4, 8, 100, 6};
  reported_rises(guard, std::span(norms).first(7));
  EXPECT_EQ(guard.norm_rise(), std::nullopt) << "the window is not full";
  reported_rises(guard, std::span(norms).subspan(7));
  EXPECT_EQ(guard.norm_rise(), 8.0 / 3) << "upper medians of 1 2 3 4 and of 4 8 100 6";
}

TEST(NormRise, IsReportedOnceUntilTheNormHasSettled) {
  Guard guard({.spike_window = 16, .norm_rise = 2});
  std::vector<double> norms(32, 1.0);
  norms.insert(norms.end(), 32, 3.0);  // rises once, and settles
  norms.insert(norms.end(), 32, 9.0);  // and again
  const std::vector<size_t> found = reported_rises(guard, norms);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], 32u + 3) << "four of the newer eight are the upper median's";
  EXPECT_EQ(found[1], 64u + 3);
  Guard off({.spike_window = 16, .norm_rise = 0});
  EXPECT_TRUE(reported_rises(off, norms).empty());
}

TEST(NormRise, OutliersBelowHalfOfAHalfAreNoTrend) {
  Guard guard({.spike_window = 16, .norm_rise = 2});
  std::vector<double> norms(64, 1.0);
  for (size_t i = 20; i < norms.size(); i += 3) norms[i] = 1e6;
  EXPECT_TRUE(reported_rises(guard, norms).empty());
}

TEST(NormRise, AResumedGuardReportsWhatTheFirstWouldHaveReported) {
  std::vector<double> norms;
  for (uint64_t i = 0; i < 400; ++i)
    norms.push_back(std::exp(0.3 * normal(3, i) + 1.5 * std::sin(static_cast<double>(i) / 20)));
  const GuardConfig config{.spike_window = 16, .norm_rise = 2};
  Guard straight(config);
  const std::vector<size_t> want = reported_rises(straight, norms);
  ASSERT_GT(want.size(), 3u);
  for (const size_t cut : {5u, 50u, 137u, 139u, 222u}) {
    Guard first(config), second(config);
    std::vector<size_t> found = reported_rises(first, std::span(norms).first(cut));
    second.set_norms(first.norms(), first.is_rise_reported());
    for (const size_t step : reported_rises(second, std::span(norms).subspan(cut)))
      found.push_back(cut + step);
    EXPECT_EQ(found, want) << cut;
  }
}

TEST(SpikeDetector, ReportsNothingBeforeHalfAWindow) {
  SpikeDetector detector(16);
  for (int i = 0; i < 7; ++i) detector.add(1);
  EXPECT_EQ(detector.score(100), 0);
  detector.add(1);
  EXPECT_GT(detector.score(100), 1000);
}

// If fewer than half of the losses in the window are bad, of whatever size, a usual loss is not a spike
// and one far above is.
TEST(SpikeDetector, BadValuesBelowHalfOfTheWindowDoNotDistortIt) {
  for (uint64_t seed = 1; seed <= 50; ++seed)
    for (double bad : {1e300, 1e6, -1e6, 40.0, kNaN, kInf, -kInf}) {
      constexpr int kWindow = 32;
      SpikeDetector detector(kWindow);
      for (int i = 0; i < kWindow; ++i) {
        const bool is_bad = random_word({.seed = seed, .purpose = Purpose::kShuffle, .stream = 0, .step = 0},
                                        static_cast<uint64_t>(i)) %
                                5 <
                            2;
        detector.add(3 + 0.1 * normal(seed, static_cast<uint64_t>(i)));
        if (is_bad && i % 2 == 0) detector.add(bad);  // bad values stay below half of the window
      }
      EXPECT_LT(std::abs(detector.score(3.1)), 10) << "seed " << seed << ", poison " << bad;
      EXPECT_GT(detector.score(20), 10) << "seed " << seed << ", poison " << bad;
      EXPECT_EQ(detector.score(kNaN), kInf);
      for (double v : detector.values()) EXPECT_TRUE(std::isfinite(v));
    }
}

TEST(SpikeDetector, ReportsNothingOnFallingOrFlatLosses) {
  SpikeDetector detector(32);
  for (int i = 0; i < 200; ++i) {
    const double falling = 2 + 8 * std::exp(-i / 20.0) + 0.02 * normal(3, static_cast<uint64_t>(i));
    EXPECT_LT(detector.score(falling), 10) << i;
    detector.add(falling);
  }
  SpikeDetector flat(8);
  for (int i = 0; i < 8; ++i) flat.add(2.5);
  EXPECT_LT(flat.score(2.5), 1e-12);
  EXPECT_LT(flat.score(2.52), 10);
  EXPECT_GT(flat.score(2.53), 10);
}

TEST(SpikeDetector, ContinuesFromItsSavedState) {
  SpikeDetector whole(16), first(16), second(16);
  for (uint64_t i = 0; i < 45; ++i) {
    whole.add(normal(9, i));
    if (i < 21) first.add(normal(9, i));
    if (i == 20) second.set_values(first.values());
    if (i > 20) second.add(normal(9, i));
  }
  EXPECT_EQ(whole.values(), second.values());
  EXPECT_EQ(whole.score(3), second.score(3));
}

StepResult result(double loss) {
  StepResult r;
  r.loss = loss;
  if (!std::isfinite(loss))
    r.non_finite = NonFinite{NonFinite::Kind::kLoss, 1, {"block 3", "output of attention"}};
  return r;
}

TEST(Guard, ReportsASpikeAndGoesOn) {
  GuardConfig config;
  config.spike_window = 8;
  Guard guard(config);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(guard.judge(result(3)).event.empty());
  const Verdict verdict = guard.judge(result(9));
  EXPECT_EQ(verdict.event, "spike");
  EXPECT_TRUE(verdict.is_accepted());
  EXPECT_NE(verdict.reason.find("9.0000"), std::string::npos) << verdict.reason;
  EXPECT_TRUE(guard.judge(result(3)).event.empty());
}

TEST(Guard, NamesTheTensorThatIsNotFinite) {
  Guard guard({});
  const Verdict verdict = guard.judge(result(kNaN));
  EXPECT_EQ(verdict.policy, GuardPolicy::kStop);
  EXPECT_EQ(verdict.event, "non_finite");
  for (const char* part : {"micro-batch 1", "block 3", "output of attention"})
    EXPECT_NE(verdict.reason.find(part), std::string::npos) << verdict.reason;
}

TEST(Guard, SkipsAFewInARowThenStops) {
  GuardConfig config;
  config.non_finite = GuardPolicy::kSkip;
  config.max_skips = 2;
  Guard guard(config);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(guard.judge(result(kNaN)).policy, GuardPolicy::kSkip);
    EXPECT_EQ(guard.judge(result(kInf)).policy, GuardPolicy::kSkip);
    EXPECT_TRUE(guard.judge(result(3)).is_accepted());
  }
  guard.judge(result(kNaN));
  guard.judge(result(kNaN));
  EXPECT_EQ(guard.judge(result(kNaN)).policy, GuardPolicy::kStop);
}

// A good step after a rollback only repeats earlier progress, so the guard counts rollbacks until the
// next checkpoint.
TEST(Guard, RollsBackAFewTimesBetweenCheckpoints) {
  GuardConfig config;
  config.non_finite = GuardPolicy::kRollback;
  config.max_skips = 2;
  Guard guard(config);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(guard.judge(result(kNaN)).policy, GuardPolicy::kRollback);
    EXPECT_TRUE(guard.judge(result(3)).is_accepted());
  }
  guard.checkpoint_saved();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(guard.judge(result(kNaN)).policy, GuardPolicy::kRollback);
  EXPECT_EQ(guard.judge(result(kNaN)).policy, GuardPolicy::kStop);
}

}  // namespace
}  // namespace ingot
