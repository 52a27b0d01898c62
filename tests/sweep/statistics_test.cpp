// Tests of a sweep's statistics against scipy and numpy.
#include "ingot/sweep/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace ingot {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Statistics, StudentsQuantilesEqualScipys) {
  // scipy.stats.t.ppf(0.975, n)
  const std::pair<int, double> expected[] = {
      {1, 12.706204736}, {2, 4.302652730},  {3, 3.182446305},  {4, 2.776445105},  {5, 2.570581836},
      {9, 2.262157163},  {10, 2.228138852}, {29, 2.045229642}, {30, 2.042272456}, {100, 1.983971519}};
  for (const auto& [freedom, t] : expected) EXPECT_NEAR(t_975(freedom), t, 1e-8) << freedom;
}

TEST(Statistics, MeanIntervalEqualsScipys) {
  // scipy.stats.t.interval(0.95, 3, mean, scipy.stats.sem(values))
  const std::vector<double> values = {2.31, 2.29, 2.35, 2.30};
  const MeanInterval mean = mean_interval(values);
  EXPECT_NEAR(mean.mean, 2.3125, 1e-12);
  ASSERT_TRUE(mean.interval);
  EXPECT_NEAR(mean.interval->low, 2.270651536957256, 1e-9);
  EXPECT_NEAR(mean.interval->high, 2.354348463042744, 1e-9);
}

TEST(Statistics, OneValueAndInfiniteValuesHaveNoInterval) {
  EXPECT_FALSE(mean_interval(std::vector{2.0}).interval);
  const MeanInterval mean = mean_interval(std::vector{2.0, kInf});
  EXPECT_EQ(mean.mean, kInf);
  EXPECT_FALSE(mean.interval);
}

TEST(Statistics, PairingTakesOutWhatSeedsHaveInCommon) {
  const std::vector<double> a = {2.31, 2.49, 2.15, 2.40}, b = {2.30, 2.48, 2.14, 2.39};
  const MeanInterval difference = paired_difference(a, b);
  EXPECT_NEAR(difference.mean, 0.01, 1e-12);
  ASSERT_TRUE(difference.interval);
  EXPECT_FALSE(difference.interval->contains(0));
  EXPECT_TRUE(mean_interval(a).interval->contains(mean_interval(b).mean));
}

TEST(Statistics, IntervalsHoldTheMeanInNineteenOfTwentyDraws) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(3.0, 0.5);
  int held = 0;
  constexpr int kDraws = 4000;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<double> values(4);
    for (double& value : values) value = noise(random);
    held += mean_interval(values).interval->contains(3.0);
  }
  EXPECT_NEAR(static_cast<double>(held) / kDraws, 0.95, 0.015);
}

std::vector<double> log_rates() {
  std::vector<double> x;
  for (const double rate : {1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2}) x.push_back(std::log(rate));
  return x;
}

TEST(Statistics, OptimumEqualsNumpysParabolaAndJackknife) {
  // numpy.polyfit(x[1:], mean(y)[1:], 2), and the same for every two of the three rows.
  const std::vector<std::vector<double>> y = {{4.10, 3.72, 3.41, 3.30, 3.52, 4.40},
                                              {4.15, 3.70, 3.44, 3.27, 3.49, 4.60},
                                              {4.08, 3.75, 3.40, 3.32, 3.55, 4.30}};
  const Optimum optimum = fit_optimum(log_rates(), y);
  EXPECT_TRUE(optimum.is_fitted);
  EXPECT_FALSE(optimum.is_at_border);
  EXPECT_EQ(optimum.best, 3u);
  EXPECT_NEAR(optimum.x, -6.240330609270868, 1e-9);
  EXPECT_NEAR(optimum.y, 3.2506326440250737, 1e-9);
  ASSERT_TRUE(optimum.interval);
  EXPECT_NEAR(optimum.interval->low, -6.3388583750208785, 1e-8);
  EXPECT_NEAR(optimum.interval->high, -6.141802843520857, 1e-8);
}

TEST(Statistics, AParabolaIsFoundExactly) {
  std::vector<double> row;
  for (const double x : log_rates()) row.push_back(2 + 0.1 * (x + 6) * (x + 6));
  const Optimum optimum = fit_optimum(log_rates(), std::vector<std::vector<double>>(1, row));
  EXPECT_NEAR(optimum.x, -6, 1e-9);
  EXPECT_NEAR(optimum.y, 2, 1e-9);
  EXPECT_FALSE(optimum.interval) << "one seed tells no uncertainty";
}

TEST(Statistics, OptimumAtTheBorderIsSaidToBeThere) {
  for (const bool falls : {true, false}) {
    std::vector<double> row;
    for (const double x : log_rates()) row.push_back(falls ? -x : x);
    const Optimum optimum = fit_optimum(log_rates(), std::vector{row, row});
    EXPECT_TRUE(optimum.is_at_border);
    EXPECT_FALSE(optimum.is_fitted);
    EXPECT_EQ(optimum.best, falls ? 5u : 0u);
    EXPECT_FALSE(optimum.interval);
  }
}

TEST(Statistics, DivergedPlacesAreWorstAndEnterNoFit) {
  const std::vector<std::vector<double>> y = {{4.10, 3.72, 3.41, 3.30, 3.52, kInf},
                                              {4.15, 3.70, 3.44, 3.27, 3.49, 9.0}};
  const Optimum optimum = fit_optimum(log_rates(), y);
  EXPECT_EQ(optimum.best, 3u);
  EXPECT_TRUE(optimum.is_fitted);
  EXPECT_TRUE(std::isfinite(optimum.x) && optimum.interval);
  const std::vector<double> diverged(6, kInf);
  const Optimum none = fit_optimum(log_rates(), std::vector<std::vector<double>>(1, diverged));
  EXPECT_FALSE(none.is_fitted);
}

TEST(Statistics, TwoPlacesFitNothing) {
  const std::vector<double> x = {1, 2};
  const Optimum optimum = fit_optimum(x, std::vector<std::vector<double>>{{3.0, 2.0}});
  EXPECT_EQ(optimum.best, 1u);
  EXPECT_FALSE(optimum.is_fitted);
}

// Losses of 5 seeds around a parabola: the interval holds the true minimum about as often as it says.
TEST(Statistics, OptimumsIntervalHoldsTheTruth) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> noise(0, 0.02);
  const std::vector<double> x = {0, 1, 2, 3, 4};
  int held = 0;
  constexpr int kDraws = 1000;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<std::vector<double>> y(5, std::vector<double>(5));
    for (auto& row : y)
      for (size_t i = 0; i < x.size(); ++i) row[i] = 0.1 * (x[i] - 2.2) * (x[i] - 2.2) + noise(random);
    const Optimum optimum = fit_optimum(x, y);
    held += optimum.interval && optimum.interval->contains(2.2);
  }
  EXPECT_NEAR(static_cast<double>(held) / kDraws, 0.95, 0.03);
}

}  // namespace
}  // namespace ingot
