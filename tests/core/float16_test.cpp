// Checks every code and every boundary of f16 against an independent table, which decodes all codes in
// double by their definition and picks the nearer of two neighbours.
#include "ingot/core/float16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ingot {
namespace {

// Returns the value of a finite code without its sign.
double decode(int code) {
  const int exponent = code >> 10, mantissa = code & 0x3ff;
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
}

constexpr int kFinite = 0x7c00;  // number of finite codes without sign; they run from 0 upwards

f16 of_bits(int bits) {
  f16 x;
  x.bits = static_cast<uint16_t>(bits);
  return x;
}

TEST(Float16, EveryCodeDecodesToItsValueAndBack) {
  for (int bits = 0; bits < 65536; ++bits) {
    const float got = static_cast<float>(of_bits(bits));
    const int code = bits & 0x7fff;
    EXPECT_EQ(std::signbit(got), bits >= 0x8000) << bits;
    if (code > kFinite) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_EQ(f16(got).bits, bits | 0x200) << "a quiet NaN with its payload";
      continue;
    }
    const double magnitude = code == kFinite ? HUGE_VAL : decode(code);
    ASSERT_EQ(std::abs(static_cast<double>(got)), magnitude) << bits;
    ASSERT_EQ(f16(got).bits, bits);
  }
  EXPECT_EQ(static_cast<double>(f16::kMax), decode(kFinite - 1));
}

// The midpoint of two neighbours rounds to the even code, and the floats next to it round to the nearer
// neighbour. The value after the largest would be 65536, whose code is infinity's.
TEST(Float16, EveryBoundaryAndItsNeighboursRoundCorrectly) {
  for (int code = 0; code < kFinite; ++code) {
    const double above = code + 1 == kFinite ? 65536.0 : decode(code + 1);
    const float middle = static_cast<float>((decode(code) + above) / 2);
    ASSERT_EQ(static_cast<double>(middle), (decode(code) + above) / 2) << "exact in f32";
    for (const int sign : {0, 0x8000}) {
      const float factor = sign ? -1.0f : 1.0f;
      ASSERT_EQ(f16(factor * middle).bits, sign | (code % 2 == 0 ? code : code + 1)) << code;
      ASSERT_EQ(f16(factor * std::nextafter(middle, 0.0f)).bits, sign | code) << code;
      ASSERT_EQ(f16(factor * std::nextafter(middle, HUGE_VALF)).bits, sign | (code + 1)) << code;
    }
  }
}

TEST(Float16, EveryBf16RoundsToTheNearestEven) {
  std::vector<double> values;
  for (int code = 0; code < kFinite; ++code) values.push_back(decode(code));
  values.push_back(65536);
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    bf16 x;
    x.bits = static_cast<uint16_t>(bits);
    const double magnitude = static_cast<double>(static_cast<float>(x));
    int want = kFinite;
    if (magnitude < 65536) {
      const auto upper = std::upper_bound(values.begin(), values.end(), magnitude);
      const int high = static_cast<int>(upper - values.begin()), low = high - 1;
      const double to_low = magnitude - values[static_cast<size_t>(low)];
      const double to_high = values[static_cast<size_t>(high)] - magnitude;
      want = to_low < to_high || (to_low == to_high && low % 2 == 0) ? low : high;
    }
    ASSERT_EQ(f16(static_cast<float>(x)).bits, want) << bits;
  }
}

TEST(Float16, TheEndsOfTheRangeRoundCorrectly) {
  EXPECT_EQ(f16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(f16(65520.0f).bits, 0x7c00) << "the tie: the even code is the infinity's";
  EXPECT_EQ(f16(-HUGE_VALF).bits, 0xfc00);
  EXPECT_EQ(f16(std::numeric_limits<float>::max()).bits, 0x7c00);
  EXPECT_EQ(f16(0x1p-25f).bits, 0);
  EXPECT_EQ(f16(0x1.000002p-25f).bits, 1);
  EXPECT_EQ(f16(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(f16(-0.0f).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(f16(std::nanf("")))));
}

}  // namespace
}  // namespace ingot
