#include "ingot/ops/cast_fp8.h"

#include <gtest/gtest.h>

#include "ingot/core/float8.h"
#include "ingot/core/parallel.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

// Rounds one element by the scalar rule.
float round_one(DType format, float scaled) {
  return format == DType::f8e4m3 ? static_cast<float>(f8e4m3(scaled)) : static_cast<float>(f8e5m2(scaled));
}

Fp8Stats count(DType format, const Doubles& x, const std::function<float(size_t)>& scale) {
  Fp8Stats stats{.elements = std::ssize(x)};
  for (size_t i = 0; i < x.size(); ++i) {
    const float value = static_cast<float>(x[i]), scaled = value * scale(i);
    const bool is_e4m3 = format == DType::f8e4m3;
    stats.saturated += is_e4m3 ? f8e4m3::saturates(scaled) : f8e5m2::saturates(scaled);
    stats.underflowed += is_e4m3 ? f8e4m3::underflows(scaled) : f8e5m2::underflows(scaled);
    stats.amax = std::max(stats.amax, std::abs(value));
  }
  return stats;
}

void expect_equal(const Fp8Stats& got, const Fp8Stats& want) {
  EXPECT_EQ(got.elements, want.elements);
  EXPECT_EQ(got.saturated, want.saturated);
  EXPECT_EQ(got.underflowed, want.underflowed);
  EXPECT_EQ(got.amax, want.amax);
}

// The values span many binades, so that some saturate and some underflow.
Buffer wide_values(DType dtype, const Shape& shape) {
  Buffer x = random_tensor(dtype, shape, 1);
  Doubles values = to_doubles(x);
  const int lowest = dtype == DType::f16 ? -29 : -25;  // the largest f16 is 65504
  for (size_t i = 0; i < values.size(); ++i) values[i] *= std::ldexp(1.0, static_cast<int>(i % 41) + lowest);
  if (values.size() > 3) values[3] = 0;
  assign(x, values);
  return x;
}

using Case = std::tuple<DType, DType, int64_t>;  // format, dtype of x, columns

class CastFp8 : public ::testing::TestWithParam<Case> {
 protected:
  DType format = std::get<0>(GetParam()), dtype = std::get<1>(GetParam());
  int64_t N = 5, C = std::get<2>(GetParam());
  Stream stream;
  Buffer x = wide_values(dtype, {N, C});
  Buffer codes{format, {N, C}}, decoded{DType::bf16, {N, C}}, rounded{DType::bf16, {N, C}};
  Doubles values = to_doubles(x);
};

TEST_P(CastFp8, OneScaleForATensorMatchesTheReference) {
  for (float scale : {1.0f, 0.37f, 1024.0f}) {
    Fp8Stats cast, round;
    cast_to_fp8(codes, x, scale, cast, stream);
    cast_from_fp8(decoded, codes, stream);
    round_to_fp8(rounded, x, format, scale, round, stream);
    Doubles want;
    for (double v : values) want.push_back(round_one(format, static_cast<float>(v) * scale));
    EXPECT_EQ(to_doubles(decoded), want);
    EXPECT_EQ(to_doubles(rounded), want);
    const Fp8Stats wanted = count(format, values, [&](size_t) { return scale; });
    expect_equal(cast, wanted);
    expect_equal(round, wanted);
    round_to_fp8(rounded, x, format, scale, round, stream);
    EXPECT_EQ(round.elements, 2 * N * C) << "stats add up";
  }
}

// One scale applies to a whole row, or to a whole column, depending on the function.
TEST_P(CastFp8, EachRowOrColumnHasItsOwnScale) {
  Buffer scratch(DType::f32, {C});
  for (bool is_by_rows : {true, false}) {
    std::vector<float> scales(static_cast<size_t>(is_by_rows ? N : C));
    const auto line = [&](size_t i) {
      return is_by_rows ? i / static_cast<size_t>(C) : i % static_cast<size_t>(C);
    };
    std::vector<float> amax(scales.size());
    for (size_t i = 0; i < values.size(); ++i)
      amax[line(i)] = std::max(amax[line(i)], static_cast<float>(std::abs(values[i])));
    for (size_t k = 0; k < scales.size(); ++k)
      scales[k] = std::exp2(std::floor(std::log2(float8_max(format) / std::max(amax[k], 1e-12f))));
    Fp8Stats stats;
    if (is_by_rows)
      round_rows_to_fp8(rounded, x, format, stats, stream);
    else
      round_columns_to_fp8(rounded, x, format, scratch, stats, stream);
    Doubles want;
    for (size_t i = 0; i < values.size(); ++i)
      want.push_back(round_one(format, static_cast<float>(values[i]) * scales[line(i)]) / scales[line(i)]);
    EXPECT_EQ(to_doubles(rounded), want);
    expect_equal(stats, count(format, values, [&](size_t i) { return scales[line(i)]; }));
    EXPECT_EQ(stats.saturated, 0) << "a power of two below max / amax never saturates";
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, CastFp8,
                         ::testing::Combine(::testing::Values(DType::f8e4m3, DType::f8e5m2),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(1, 31, 32, 33, 9000)));

TEST(CastFp8Once, ScaleIsTheLargestValueOverAmax) {
  EXPECT_EQ(fp8_scale(DType::f8e4m3, 448, Fp8ScaleFloor::kExact), 1.0f);
  EXPECT_EQ(fp8_scale(DType::f8e4m3, 3, Fp8ScaleFloor::kExact), static_cast<float>(448.0 / 3.0));
  EXPECT_EQ(fp8_scale(DType::f8e4m3, 3, Fp8ScaleFloor::kPowerOfTwo), 128.0f);
  EXPECT_EQ(fp8_scale(DType::f8e5m2, 1.75f, Fp8ScaleFloor::kPowerOfTwo), 32768.0f);
  EXPECT_EQ(fp8_scale(DType::f8e4m3, 0, Fp8ScaleFloor::kExact), static_cast<float>(448 / 1e-12));
}

TEST(CastFp8Once, AmaxIgnoresNan) {
  Stream stream;
  Buffer x(DType::f32, {5});
  assign(x, {1, std::nan(""), -7, 3, 0});
  EXPECT_EQ(absolute_max(x, stream), 7.0f);
  Buffer rounded(DType::bf16, {5});
  Fp8Stats stats;
  round_to_fp8(rounded, x, DType::f8e4m3, 1, stats, stream);
  EXPECT_EQ(stats.amax, 7.0f);
  EXPECT_TRUE(std::isnan(to_doubles(rounded)[1]));
}

TEST(CastFp8Once, StatsDoNotDependOnTheNumberOfThreads) {
  const int before = num_threads();
  Stream stream;
  Buffer x = wide_values(DType::f32, {300, 700}), rounded(DType::bf16, {300, 700}), amax(DType::f32, {700});
  std::vector<Fp8Stats> all;
  for (int threads : {1, 2, 5}) {
    set_num_threads(threads);
    Fp8Stats stats;
    round_to_fp8(rounded, x, DType::f8e4m3, 64, stats, stream);
    round_rows_to_fp8(rounded, x, DType::f8e5m2, stats, stream);
    round_columns_to_fp8(rounded, x, DType::f8e4m3, amax, stats, stream);
    all.push_back(stats);
  }
  set_num_threads(before);
  expect_equal(all[1], all[0]);
  expect_equal(all[2], all[0]);
}

TEST(CastFp8Once, ErrorsNameTheOperand) {
  Stream stream;
  Fp8Stats stats;
  Buffer x = zeros(DType::f32, {2, 3}), bytes(DType::u8, {2, 3}), small(DType::f8e4m3, {3, 2});
  EXPECT_THROW(cast_to_fp8(bytes, x, 1, stats, stream), Error);
  EXPECT_THROW(cast_to_fp8(small, x, 1, stats, stream), Error);
  EXPECT_THROW(cast_from_fp8(x, bytes, stream), Error);
}

}  // namespace
}  // namespace ingot::test
