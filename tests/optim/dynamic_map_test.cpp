#include "ingot/optim/rules/dynamic_map.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/reference/optimizers.h"

namespace ingot::test {
namespace {

// Published values: signed code 127 is 0, the largest value is +1, the least -0.99297, and the smallest
// magnitudes are 5.5e-7 and 3.25e-7.
TEST(DynamicMap, EqualsTheReference) {
  for (const bool is_signed : {true, false}) {
    const auto map = dynamic_map(is_signed);
    const Doubles want = dynamic_map_reference(is_signed);
    ASSERT_EQ(want.size(), 256u);
    for (size_t c = 0; c < 256; ++c)
      EXPECT_NEAR(map[c], want[c], 2 * unit_roundoff(DType::f32) * std::abs(want[c])) << c;
  }
  EXPECT_EQ(dynamic_map(true)[127], 0);
  EXPECT_EQ(dynamic_map(true)[255], 1);
  EXPECT_NEAR(dynamic_map(true)[0], -0.99297, 5e-6);
  EXPECT_NEAR(dynamic_map(true)[128], 5.5e-7, 1e-12);
  EXPECT_EQ(dynamic_map(false)[0], 0);
  EXPECT_NEAR(dynamic_map(false)[1], 3.25e-7, 1e-12);
}

// Every code's value maps back to the code, and any other number goes to the nearest value, to within
// f32 rounding of the midpoint.
TEST(DynamicMap, EveryValueGetsTheNearestCode) {
  const Doubles with_sign = dynamic_map_reference(true), without = dynamic_map_reference(false);
  for (size_t c = 0; c < 256; ++c) {
    EXPECT_EQ(signed_code(static_cast<float>(with_sign[c])), c);
    EXPECT_EQ(unsigned_code(static_cast<float>(without[c])), c);
  }
  const auto expect_nearest = [](const Doubles& map, size_t code, double x) {
    const double best = std::abs(map[nearest_code(map, x)] - x), got = std::abs(map[code] - x);
    ASSERT_LE(got, best + 4 * unit_roundoff(DType::f32) * std::abs(x)) << x << " got code " << code;
  };
  for (int i = -50'000; i <= 50'000; ++i) {
    // One value is spread evenly over the decades, the other evenly over the whole range.
    const auto log_x = static_cast<float>(std::copysign(std::pow(10.0, std::abs(i) / 6250.0 - 8), i));
    const auto x = static_cast<float>(i / 50'000.0);
    for (float value : {log_x, x}) {
      expect_nearest(with_sign, signed_code(value), value);
      if (value >= 0) expect_nearest(without, unsigned_code(value), value);
    }
  }
}

// The vectorized functions give the codes and values of the scalar ones, for every remainder of n.
TEST(DynamicMap, EncodesBlocksAsItEncodesSingleValues) {
  std::vector<float> x = {0, -0.0f, 1, -1, 0.5f, 1e-30f, -1e-30f};
  for (int i = -20'000; i <= 20'000; ++i) {
    x.push_back(static_cast<float>(std::copysign(std::pow(10.0, std::abs(i) / 2500.0 - 8), i)));
    x.push_back(static_cast<float>(i / 20'000.0));
  }
  const auto expect_same = [&](bool is_signed) {
    std::vector<float> values;
    for (float value : x)
      if (is_signed || value >= 0) values.push_back(value);
    const auto map = dynamic_map(is_signed);
    std::vector<uint8_t> codes(values.size());
    std::vector<float> decoded(values.size());
    for (const float unit : {1.0f, 0.7f}) {
      const auto n = std::ssize(values);
      is_signed ? encode_signed(codes.data(), values.data(), unit, n)
                : encode_unsigned(codes.data(), values.data(), unit, n);
      decode_dynamic(decoded.data(), codes.data(), map.data(), 1 / unit, n);
      for (size_t i = 0; i < values.size(); ++i) {
        const float value = values[i] * unit;
        const int one = is_signed ? signed_code(value) : unsigned_code(value);
        // At the midpoint of two values, to within rounding, the two functions may choose different codes.
        const float gap =
            std::abs(std::abs(map[codes[i]] - value) - std::abs(map[static_cast<size_t>(one)] - value));
        ASSERT_TRUE(codes[i] == one || gap <= 4 * unit_roundoff(DType::f32) * std::abs(value)) << value;
        ASSERT_EQ(decoded[i], map[codes[i]] * (1 / unit));
      }
    }
  };
  expect_same(true);
  expect_same(false);
}

}  // namespace
}  // namespace ingot::test
