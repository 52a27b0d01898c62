#include "ingot/core/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ingot {
namespace {

constexpr RandomKey kKey{.seed = 42, .purpose = Purpose::kInit, .stream = 3, .step = 0};

// The known answers are those of the authors' Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryPartOfTheKeyMatters) {
  const uint32_t base = random_word(kKey, 5);
  EXPECT_EQ(random_word(kKey, 5), base);
  EXPECT_NE(random_word(kKey, 6), base);
  for (RandomKey other : {RandomKey{.seed = 43, .purpose = Purpose::kInit, .stream = 3, .step = 0},
                          RandomKey{.seed = 42, .purpose = Purpose::kDropout, .stream = 3, .step = 0},
                          RandomKey{.seed = 42, .purpose = Purpose::kInit, .stream = 4, .step = 0},
                          RandomKey{.seed = 42, .purpose = Purpose::kInit, .stream = 3, .step = 1}})
    EXPECT_NE(random_word(other, 5), base);
}

TEST(Philox, NormalHasTheMomentsOfANormal) {
  constexpr uint64_t kCount = 1 << 20;
  double sums[4] = {};
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = random_normal(kKey, i);
    ASSERT_TRUE(std::isfinite(x));
    double power = 1;
    for (double& sum : sums) sum += power *= x;
  }
  // The bounds are five standard errors of the moments' means, which are sqrt(1, 2, 15, 96) / 1024.
  EXPECT_NEAR(sums[0] / kCount, 0, 5 * std::sqrt(1.0) / 1024);
  EXPECT_NEAR(sums[1] / kCount, 1, 5 * std::sqrt(2.0) / 1024);
  EXPECT_NEAR(sums[2] / kCount, 0, 5 * std::sqrt(15.0) / 1024);
  EXPECT_NEAR(sums[3] / kCount, 3, 5 * std::sqrt(96.0) / 1024);
}

}  // namespace
}  // namespace ingot
