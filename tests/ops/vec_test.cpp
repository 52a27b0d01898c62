#include "ingot/ops/simd/vec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace ingot {
namespace {

float lane(vec::Vec v) { return v[0]; }

TEST(Vec, ExpIsWithinTwoUlp) {
  for (float x = -87.3f; x < 88.3f; x += 0.00137f) {
    const double want = std::exp(static_cast<double>(x));
    ASSERT_NEAR(lane(vec::exp(vec::splat(x))), want, want * 3 * 0x1p-24) << x;
  }
}

TEST(Vec, ExpIsExactAtZeroAndBeyondItsRange) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(lane(vec::exp(vec::splat(-inf))), 0.0f);
  EXPECT_EQ(lane(vec::exp(vec::splat(-1000.0f))), 0.0f);
  EXPECT_EQ(lane(vec::exp(vec::splat(1000.0f))), inf);
  EXPECT_EQ(lane(vec::exp(vec::splat(0.0f))), 1.0f);
  EXPECT_TRUE(std::isnan(lane(vec::exp(vec::splat(std::nanf(""))))));
}

TEST(Vec, TanhAndSigmoidAreWithin2e7) {
  for (float x = -20; x < 20; x += 0.003f) {
    ASSERT_NEAR(lane(vec::tanh(vec::splat(x))), std::tanh(static_cast<double>(x)), 2e-7) << x;
    ASSERT_NEAR(lane(vec::sigmoid(vec::splat(x))), 1 / (1 + std::exp(-static_cast<double>(x))), 2e-7) << x;
  }
}

// Every bf16 survives a round trip, and a register rounds exactly like the scalar type, except
// that subnormals may become 0.
TEST(Vec, Bf16RoundsLikeTheScalarType) {
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (uint32_t low : {0x0000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float x = std::bit_cast<float>(high << 16 | low);
      bf16 stored[vec::kLanes];
      vec::store(stored, vec::splat(x));
      ASSERT_EQ(stored[vec::kLanes - 1].bits, stored[0].bits);
      if (std::fpclassify(x) == FP_SUBNORMAL && (stored[0].bits & 0x7fffu) == 0) continue;
      ASSERT_EQ(stored[0].bits, bf16(x).bits) << std::hex << high << " " << low;
      if (low == 0 && !std::isnan(x)) {
        ASSERT_EQ(stored[0].bits, high);
      }
    }
  }
}

// A register reads every code and rounds like the scalar type: at every code, midway between
// two, and next to the midpoint.
TEST(Vec, F16ConvertsLikeTheScalarType) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const f16 x = std::bit_cast<f16>(static_cast<uint16_t>(code));
    f16 row[vec::kLanes];
    std::fill(row, row + vec::kLanes, x);
    const float want = static_cast<float>(x);
    ASSERT_EQ(std::bit_cast<uint32_t>(lane(vec::load(row))), std::bit_cast<uint32_t>(want)) << code;
    ASSERT_EQ(std::bit_cast<uint32_t>(lane(vec::load_first(row, 1))), std::bit_cast<uint32_t>(want)) << code;
    for (uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x1fffu}) {
      const float y = std::bit_cast<float>(std::bit_cast<uint32_t>(want) + low);
      f16 stored[vec::kLanes];
      vec::store(stored, vec::splat(y));
      ASSERT_EQ(stored[vec::kLanes - 1].bits, stored[0].bits);
      ASSERT_EQ(stored[0].bits, f16(y).bits) << std::hex << code << " " << low;
    }
  }
}

TEST(Vec, PartialLoadsAndStoresTouchNothingElse) {
  float values[2 * vec::kLanes];
  for (int n = 0; n < vec::kLanes; ++n) {
    for (int i = 0; i < 2 * vec::kLanes; ++i) values[i] = static_cast<float>(i + 1);
    const vec::Vec v = vec::load_first(values, n);
    EXPECT_EQ(vec::sum(v), static_cast<float>(n * (n + 1) / 2));
    vec::store_first(values, vec::splat(-1), n);
    for (int i = 0; i < 2 * vec::kLanes; ++i) EXPECT_EQ(values[i], i < n ? -1.0f : static_cast<float>(i + 1));
  }
}

}  // namespace
}  // namespace ingot
