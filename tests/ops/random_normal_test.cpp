#include "ingot/ops/random_normal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "ingot/core/parallel.h"
#include "ingot/ops/fill_normal.h"
#include "ingot/ops/random_blocks.h"
#include "tests/reference/numeric.h"

namespace ingot {
namespace {

constexpr RandomKey kKey{.seed = 0x123456789abcdefu, .purpose = Purpose::kInit, .stream = 7, .step = 3};

TEST(RandomBlocks, MatchTheScalarGenerator) {
  const RandomBlocks random(kKey);
  uint32_t words[RandomBlocks::kWords];
  for (uint64_t first : {uint64_t{0}, uint64_t{5}, uint64_t{0xfffffffe}, uint64_t{0x1234567890}}) {
    random.fill(words, first);
    for (uint64_t i = 0; i < RandomBlocks::kWords; ++i)
      ASSERT_EQ(words[i], random_block(kKey, first + i / 4)[i % 4]) << first << " " << i;
  }
}

// Compares with Box-Muller in double on the same words. A few float roundings add up to
// 8 * 2^-24 of a radius <= 6.7.
TEST(RandomNormal, IsTheBoxMullerTransformOfTheRandomWords) {
  constexpr double kTolerance = 8 * 0x1p-24 * 6.7;
  for (int64_t n : {1, 3, 4, 63, 64, 65, 1000, 40'001}) {
    std::vector<float> y(static_cast<size_t>(n) + 1, -99.0f);
    fill_normal(Tensor(y.data(), DType::f32, {n}), 1.0f, kKey);
    for (int64_t i = 0; i < n; ++i) {
      const Philox4 words = random_block(kKey, static_cast<uint64_t>(i / 4));
      const size_t pair = static_cast<size_t>(i % 4 / 2 * 2);
      const double u = (static_cast<double>(words[pair]) + 1) * 0x1p-32;
      const double angle = 2 * std::numbers::pi * static_cast<double>(words[pair + 1] >> 8) * 0x1p-24;
      const double want = std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
      ASSERT_NEAR(y[static_cast<size_t>(i)], want, kTolerance) << n << " " << i;
      ASSERT_NEAR(random_normal(kKey, static_cast<uint64_t>(i)), want, kTolerance);
    }
    EXPECT_EQ(y.back(), -99.0f);
  }
}

TEST(RandomNormal, DoesNotDependOnTheNumberOfThreads) {
  const int threads = num_threads();
  std::vector<float> one(50'003), two(50'003);
  set_num_threads(1);
  fill_normal(Tensor(one.data(), DType::f32, {50'003}), 0.02f, kKey);
  set_num_threads(2);
  fill_normal(Tensor(two.data(), DType::f32, {50'003}), 0.02f, kKey);
  set_num_threads(threads);
  EXPECT_EQ(one, two);
}

TEST(RandomNormal, ARangeEqualsThatRangeOfTheWhole) {
  std::vector<float> whole(3000);
  fill_normal(Tensor(whole.data(), DType::f32, {3000}), 0.02f, kKey);
  for (int64_t begin : {0, 1, 2, 3, 4, 63, 64, 129, 1777})
    for (int64_t n : {1, 2, 5, 64, 65, 1000}) {
      std::vector<float> part(static_cast<size_t>(n) + 1, -99.0f);
      fill_normal(Tensor(part.data(), DType::f32, {n}), 0.02f, kKey, static_cast<uint64_t>(begin));
      for (int64_t i = 0; i < n; ++i)
        ASSERT_EQ(part[static_cast<size_t>(i)], whole[static_cast<size_t>(begin + i)]) << begin << " " << n;
      EXPECT_EQ(part.back(), -99.0f);
    }
}

TEST(RandomNormal, IsAccurateAtTheEdgesOfItsPolynomials) {
  for (float x : {0x1p-32f, 0x1p-24f, 0.25f, 0.70710677f, 0.70710683f, 0.99999994f, 1.0f}) {
    const double want = std::log(static_cast<double>(x));
    EXPECT_NEAR(natural_log(x), want, 3 * 0x1p-24 * std::abs(want)) << x;
  }
  for (int i = 0; i <= 1 << 12; ++i) {
    const float turn = static_cast<float>(i) * 0x1p-12f;
    const double angle = 2 * std::numbers::pi * static_cast<double>(turn);
    ASSERT_NEAR(direction_of_turn(turn).cos, std::cos(angle), 2e-7) << turn;
    ASSERT_NEAR(direction_of_turn(turn).sin, std::sin(angle), 2e-7) << turn;
  }
}

TEST(FillNormal, HasTheWantedMeanAndDeviationInEveryDtype) {
  constexpr int64_t kPeriod = 65521, kCount = kPeriod * 3 + 7;  // three sequences and a rest
  constexpr double kScale = 0.5;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const test::Buffer t(dtype, {kCount});
    Stream stream;
    fill_normal(t.tensor(), kScale, stream);
    const std::vector<double> values = test::to_doubles(t);
    double sum = 0, squares = 0;
    for (const double x : values) sum += x, squares += x * x;
    for (size_t i = kPeriod; i < values.size(); ++i) ASSERT_EQ(values[i], values[i - kPeriod]) << i;
    // Five standard errors of 65521 independent numbers.
    const double error = 5 / std::sqrt(65521.0);
    EXPECT_NEAR(sum / kCount, 0, kScale * error) << name(dtype);
    EXPECT_NEAR(squares / kCount, kScale * kScale, kScale * kScale * error * std::sqrt(2.0)) << name(dtype);
    EXPECT_NE(values.back(), 0) << name(dtype);
  }
}

}  // namespace
}  // namespace ingot
