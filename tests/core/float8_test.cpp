// Checks every bf16 value and every boundary of the 8-bit floats against an independent table, which
// decodes all 256 codes in double by their definition and searches them for the nearest.
#include "ingot/core/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/reference/sha256.h"

namespace ingot::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Definition holds what the specification says about a format, independent of the code under test.
struct Definition {
  const char* name;
  int exponent_bits, mantissa_bits, bias;
  bool has_infinity;
};

template <typename T>
Definition definition() {
  if (std::is_same_v<T, f8e4m3>) return {"f8e4m3", 4, 3, 7, false};
  return {"f8e5m2", 5, 2, 15, true};
}

// Returns the value of a code in 0 .. 127, or NaN if the code is not finite.
double decode(const Definition& d, int code) {
  const int exponent = code >> d.mantissa_bits, mantissa = code & ((1 << d.mantissa_bits) - 1);
  const int last = (1 << d.exponent_bits) - 1, all_ones = (1 << d.mantissa_bits) - 1;
  if (exponent == last && (d.has_infinity || mantissa == all_ones)) return std::nan("");
  if (exponent == 0) return std::ldexp(mantissa, 1 - d.bias - d.mantissa_bits);
  return std::ldexp((1 << d.mantissa_bits) + mantissa, exponent - d.bias - d.mantissa_bits);
}

// Returns the finite values by code, in ascending order from 0.
std::vector<double> finite_values(const Definition& d) {
  std::vector<double> values;
  for (int code = 0; code < 128 && !std::isnan(decode(d, code)); ++code) values.push_back(decode(d, code));
  return values;
}

struct Wanted {
  int code;
  bool saturates, underflows;
};

// Returns the nearest of the finite values and the value that would follow the last.
// At a tie the even code wins.
Wanted nearest(const std::vector<double>& values, float x) {
  const double magnitude = std::abs(static_cast<double>(x));
  const int count = static_cast<int>(values.size());
  const double beyond = 2 * values.back() - values[values.size() - 2];
  int best = 0;
  double distance = magnitude;
  for (int code = 1; code <= count; ++code) {
    const double other = std::abs(magnitude - (code < count ? values[static_cast<size_t>(code)] : beyond));
    if (other < distance || (other == distance && code % 2 == 0)) best = code, distance = other;
  }
  if (magnitude >= beyond) best = count;
  const int sign = std::signbit(x) ? 0x80 : 0;
  return {sign | std::min(best, count - 1), best == count, best == 0 && magnitude > 0};
}

template <typename T>
class Float8Test : public ::testing::Test {
 protected:
  Definition d = definition<T>();
  std::vector<double> values = finite_values(d);

  void expect_nearest(float x) {
    const T cast(x);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(cast)));
      EXPECT_FALSE(T::saturates(x) || T::underflows(x));
      return;
    }
    const Wanted want = nearest(values, x);
    ASSERT_EQ(cast.bits, want.code) << d.name << " of " << x;
    ASSERT_EQ(T::saturates(x), want.saturates) << d.name << " of " << x;
    ASSERT_EQ(T::underflows(x), want.underflows) << d.name << " of " << x;
  }
};

using Formats = ::testing::Types<f8e4m3, f8e5m2>;
TYPED_TEST_SUITE(Float8Test, Formats);

TYPED_TEST(Float8Test, EveryCodeDecodesToItsValue) {
  for (int code = 0; code < 256; ++code) {
    TypeParam x;
    x.bits = static_cast<uint8_t>(code);
    const float got = static_cast<float>(x);
    const double want = decode(this->d, code & 0x7f);
    if (std::isnan(want)) {
      const bool is_infinity = this->d.has_infinity && (code & 0x7f) == 0x7c;
      EXPECT_EQ(std::isinf(got), is_infinity) << code;
      EXPECT_EQ(std::isnan(got), !is_infinity) << code;
      continue;
    }
    EXPECT_EQ(static_cast<double>(got), code < 128 ? want : -want) << code;
    EXPECT_EQ(std::signbit(got), code >= 128) << code;
    EXPECT_EQ(static_cast<float>(bf16(got)), got) << "a bf16 holds it";
    EXPECT_EQ(TypeParam(got).bits, code) << "and back";
  }
  EXPECT_EQ(this->values.back(), static_cast<double>(TypeParam::kMax));
}

TYPED_TEST(Float8Test, EveryBf16RoundsToTheNearestEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    bf16 x;
    x.bits = static_cast<uint16_t>(bits);
    this->expect_nearest(static_cast<float>(x));
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(Float8Test, EveryBoundaryAndItsNeighboursRoundCorrectly) {
  std::vector<double> edges = this->values;
  for (size_t i = 0; i + 1 < this->values.size(); ++i)
    edges.push_back((this->values[i] + this->values[i + 1]) / 2);
  const double last_step = this->values.back() - this->values[this->values.size() - 2];
  edges.push_back(this->values.back() + last_step / 2);
  edges.push_back(this->values.back() + last_step);
  for (double edge : edges)
    for (float sign : {1.0f, -1.0f}) {
      const float x = sign * static_cast<float>(edge);
      for (float value : {x, std::nextafter(x, kInfinity), std::nextafter(x, -kInfinity)})
        this->expect_nearest(value);
      if (this->HasFatalFailure()) return;
    }
  for (float value : {kInfinity, -kInfinity, std::nanf(""), std::numeric_limits<float>::max(),
                      std::numeric_limits<float>::denorm_min(), 0.0f, -0.0f})
    this->expect_nearest(value);
}

TYPED_TEST(Float8Test, CodesOfAllBf16AreThoseOfPyTorch) {
  std::string codes;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    bf16 x;
    x.bits = static_cast<uint16_t>(bits);
    const float value = static_cast<float>(x);
    codes += static_cast<char>(std::isnan(value) ? 0x7f : TypeParam(value).bits);
  }
  std::ifstream golden(INGOT_TEST_DATA "/fp8/casts.txt");
  std::string name, hash;
  while (golden >> name >> hash && name != this->d.name) {
  }
  ASSERT_EQ(name, this->d.name);
  EXPECT_EQ(sha256_hex(codes), hash);
}

TEST(Float8, TheEndsOfTheRangesRoundCorrectly) {
  EXPECT_EQ(static_cast<float>(f8e4m3(464.0f)), 448.0f);  // a tie; 448 has the even code
  EXPECT_FALSE(f8e4m3::saturates(464.0f));
  EXPECT_EQ(static_cast<float>(f8e4m3(465.0f)), 448.0f);
  EXPECT_TRUE(f8e4m3::saturates(465.0f));
  EXPECT_FALSE(f8e5m2::saturates(61439.0f));
  EXPECT_EQ(static_cast<float>(f8e5m2(-61440.0f)), -57344.0f);
  EXPECT_TRUE(f8e5m2::saturates(-61440.0f));  // a tie; the even code is infinity's
  EXPECT_EQ(static_cast<float>(f8e4m3(-kInfinity)), -448.0f);
  EXPECT_TRUE(f8e5m2::saturates(kInfinity));
  EXPECT_EQ(f8e4m3(0x1p-10f).bits, 0);
  EXPECT_EQ(f8e4m3(0x1.8p-10f).bits, 1);
  EXPECT_EQ(float8_max(DType::f8e4m3), 448.0f);
  EXPECT_EQ(float8_max(DType::f8e5m2), 57344.0f);
}

}  // namespace
}  // namespace ingot::test
