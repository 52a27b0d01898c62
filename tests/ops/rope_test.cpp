#include "ingot/ops/rope.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/reference/error_of.h"
#include "tests/reference/head_tensor.h"
#include "tests/reference/rope.h"

namespace ingot::test {
namespace {

constexpr int64_t kRopeOffset = 5;

struct RopeCase {
  DType dtype;
  int64_t B, T, H, D, R;
};

std::string rope_case_name(const ::testing::TestParamInfo<RopeCase>& info) {
  const RopeCase& c = info.param;
  return fmt::format("{}_B{}_T{}_H{}_D{}_R{}", name(c.dtype), c.B, c.T, c.H, c.D, c.R);
}

class Rope : public ::testing::TestWithParam<RopeCase> {
 protected:
  void SetUp() override { rope_table(table, 10000); }

  RopeCase c = GetParam();
  Stream stream;
  Buffer table{DType::f32, {c.T + kRopeOffset, c.R}};
  Buffer packed = random_tensor(c.dtype, {c.B, c.T, (c.H + 2) * c.D}, 1);
  Tensor x = packed.tensor().columns(c.D, (c.H + 1) * c.D).split_last(c.H, c.D);
  HeadShape shape{static_cast<size_t>(c.B), static_cast<size_t>(c.T), static_cast<size_t>(c.H),
                  static_cast<size_t>(c.D)};
  double tolerance =
      unit_roundoff(c.dtype) * 2 + 4 * unit_roundoff(DType::f32);  // two products, one rounding
};

TEST_P(Rope, ForwardRotatesTheViewOnly) {
  const Doubles before = to_doubles(packed);
  const Doubles want =
      rope_reference(gather(x), shape, to_doubles(table), static_cast<size_t>(c.R), kRopeOffset);
  rope_forward(x, table, kRopeOffset, stream);
  expect_near(x, want, tolerance, "x");
  const Doubles after = to_doubles(packed);
  const auto D = static_cast<size_t>(c.D), width = (shape.H + 2) * D;
  for (size_t i = 0; i < after.size(); ++i)
    if (i % width < D || i % width >= width - D) {
      ASSERT_EQ(after[i], before[i]) << i;
    }
}

TEST_P(Rope, BackwardIsTheInverseRotation) {
  const Doubles want =
      rope_reference(gather(x), shape, to_doubles(table), static_cast<size_t>(c.R), kRopeOffset, -1);
  rope_backward(x, table, kRopeOffset, stream);
  expect_near(x, want, tolerance, "dx");
}

std::vector<RopeCase> rope_cases() {
  std::vector<RopeCase> all;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [D, R] : {std::pair{2, 2}, {8, 8}, {33, 32}, {64, 64}, {80, 20}, {128, 128}, {31, 30}})
      all.push_back({dtype, 2, D == 64 ? 65 : 3, 3, D, R});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Rope, ::testing::ValuesIn(rope_cases()), rope_case_name);

TEST(RopeTable, MatchesTheFormulaWithinTheRoundingOfTheAngle) {
  const int64_t T = 300, R = 20;
  Buffer table(DType::f32, {T, R});
  rope_table(table, 1000);
  for (int64_t t = 0; t < T; ++t)
    for (int64_t i = 0; i < R / 2; ++i) {
      const double angle = static_cast<double>(t) * std::pow(1000.0, -2.0 * static_cast<double>(i) / R);
      // The exponent (times ln theta = 7), the power, the quotient and the product are rounded once each.
      const double bound = (angle * 10 + 1) * unit_roundoff(DType::f32);
      ASSERT_NEAR(table.tensor().as<float>()[t * R + i], std::cos(angle), bound) << t << ", " << i;
      ASSERT_NEAR(table.tensor().as<float>()[t * R + R / 2 + i], std::sin(angle), bound) << t << ", " << i;
    }
}

TEST(RopeTable, MatchesHuggingFaceLlama) {
  std::ifstream file(INGOT_TEST_DATA "/rope/llama_rope.txt");
  ASSERT_TRUE(file);
  std::string line;
  std::getline(file, line);
  int64_t compared = 0;
  while (std::getline(file, line)) {
    double theta, cos, sin;
    int64_t R, position, i;
    ASSERT_TRUE(std::istringstream(line) >> theta >> R >> position >> i >> cos >> sin) << line;
    Buffer table(DType::f32, {position + 1, R});
    rope_table(table, theta);
    const float* row = table.tensor().as<float>() + position * R;
    ASSERT_NEAR(row[i], cos, 1e-6) << line;
    ASSERT_NEAR(row[R / 2 + i], sin, 1e-6) << line;
    ++compared;
  }
  EXPECT_EQ(compared, 195);
}

// The frequency of index i is 100^(-i/8), which turns 64 * 100^(-i/8) / (2 pi) times in 64 tokens: more than
// 4 times up to i = 1, and less than once from i = 5 on.
TEST(RopeTable, YarnScalesSlowFrequenciesAndInterpolatesThoseBetween) {
  const int64_t R = 16, T = 20;
  Buffer table(DType::f32, {T, R});
  rope_table(table, 100,
             {.kind = RopeScaling::Kind::kYarn,
              .factor = 4,
              .beta_fast = 4,
              .beta_slow = 1,
              .original_context = 64});
  const double scaled[R / 2] = {0, 0, 0.25, 0.5, 0.75, 1, 1, 1};  // how far each frequency is divided by 4
  for (int64_t t = 0; t < T; ++t)
    for (int64_t i = 0; i < R / 2; ++i) {
      const double divided = scaled[i], f = std::pow(100.0, -static_cast<double>(i) / 8);
      const double angle = static_cast<double>(t) * f * (1 - divided + divided / 4);
      // The exponent (times ln theta = 5), the power, the quotients, the interpolation and the product are
      // rounded.
      const double bound = (angle * 14 + 1) * unit_roundoff(DType::f32);
      ASSERT_NEAR(table.tensor().as<float>()[t * R + i], std::cos(angle), bound) << t << ", " << i;
      ASSERT_NEAR(table.tensor().as<float>()[t * R + R / 2 + i], std::sin(angle), bound) << t << ", " << i;
    }
}

TEST(RopeErrors, NameWhatDoesNotFit) {
  Stream stream;
  Buffer x = random_tensor(DType::f32, {1, 4, 2, 8}, 1), table(DType::f32, {6, 8}), wide(DType::f32, {6, 10});
  const auto message_of = [&](const Tensor& t, int64_t offset) -> std::string {
    return error_of([&] { rope_forward(x, t, offset, stream); });
  };
  EXPECT_EQ(message_of(table, 3), "rope_forward: positions 3 to 6 do not fit a table of 6");
  EXPECT_EQ(message_of(wide, 0), "rope_forward: rotated dims must be even and at most D = 8, got 10");
  EXPECT_EQ(message_of({}, 0), "rope_forward: no table");
}

}  // namespace
}  // namespace ingot::test
