#include "ingot/ops/qk_norm.h"

#include <gtest/gtest.h>

#include "ingot/ops/rope.h"
#include "ingot/ops/row_sum.h"
#include "tests/reference/head_tensor.h"
#include "tests/reference/qk_norm.h"

namespace ingot::test {
namespace {

constexpr float kQkEps = 1e-5f;
constexpr int64_t kOffset = 2;

struct QkNormCase {
  DType dtype;
  int64_t B, T, H, D, R;  // R = 0 means no table
};

std::string qk_norm_case_name(const ::testing::TestParamInfo<QkNormCase>& info) {
  const QkNormCase& c = info.param;
  return fmt::format("{}_B{}_T{}_H{}_D{}_R{}", name(c.dtype), c.B, c.T, c.H, c.D, c.R);
}

class QkNorm : public ::testing::TestWithParam<QkNormCase> {
 protected:
  void SetUp() override {
    if (!c.R) return;
    rope_table(angles, 10000);
    table = angles;
    table_values = to_doubles(angles);
  }
  Doubles reference(const Doubles& values) const {
    return qk_norm_reference(values, shape, table_values, static_cast<size_t>(c.R), kOffset, kQkEps);
  }
  Tensor heads(const Tensor& packed) const {
    return packed.columns(c.D, (c.H + 1) * c.D).split_last(c.H, c.D);
  }

  QkNormCase c = GetParam();
  Stream stream;
  Buffer angles{DType::f32, {c.T + kOffset, std::max<int64_t>(c.R, 2)}};
  Tensor table;
  Doubles table_values;
  Buffer packed = random_tensor(c.dtype, {c.B, c.T, (c.H + 2) * c.D}, 1, 3.0);
  Buffer d_packed = random_tensor(c.dtype, {c.B, c.T, (c.H + 2) * c.D}, 2);
  Buffer rstd{DType::f32, {c.B, c.T, c.H}};
  Tensor x = heads(packed), dy = heads(d_packed);
  HeadShape shape{static_cast<size_t>(c.B), static_cast<size_t>(c.T), static_cast<size_t>(c.H),
                  static_cast<size_t>(c.D)};
  // The error is that of an f32 sum of D products, a few more products, and one rounding to the dtype
  // of values up to sqrt(2) apart.
  double tolerance =
      2 * unit_roundoff(c.dtype) + 4 * unit_roundoff(DType::f32) * std::sqrt(static_cast<double>(c.D));
};

TEST_P(QkNorm, ForwardMatchesReference) {
  const Doubles want = reference(gather(x)), values = gather(x);
  qk_norm_forward(x, rstd, table, kOffset, kQkEps, stream);
  expect_near(x, want, tolerance, "y");
  for (size_t head = 0; head < values.size() / shape.D; ++head) {
    double mean_square = kQkEps;
    for (size_t d = 0; d < shape.D; ++d)
      mean_square += values[head * shape.D + d] * values[head * shape.D + d] / static_cast<double>(c.D);
    ASSERT_NEAR(rstd.tensor().as<float>()[head] * std::sqrt(mean_square), 1, tolerance);
  }
}

TEST_P(QkNorm, BackwardMatchesCentralDifferences) {
  const Doubles d_out = gather(dy);
  const Doubles want =
      central_differences([&](const Doubles& v) { return dot(reference(v), d_out); }, gather(x));
  qk_norm_forward(x, rstd, table, kOffset, kQkEps, stream);
  qk_norm_backward(dy, x, rstd, table, kOffset, stream);
  double largest = 1;
  for (size_t i = 0; i < static_cast<size_t>(c.B * c.T * c.H); ++i)
    largest = std::max(largest, static_cast<double>(rstd.tensor().as<float>()[i]));
  expect_near(dy, want, largest * 4 * tolerance + 1e-8, "dx");
}

// The first head is a query's, the second a key's.
TEST_P(QkNorm, GainsMatchReferenceAndCentralDifferences) {
  const Buffer gains = random_tensor(DType::f32, {2, c.D}, 3),
               d_gains = random_tensor(DType::f32, {2, c.D}, 4);
  const auto pair = [&](const Tensor& t) {
    return QkGains{t.rows(0, 1).reshape({c.D}), t.rows(1, 2).reshape({c.D}), 1};
  };
  const auto value = [&](const Doubles& x_values, const Doubles& gain_values) {
    return qk_norm_reference(x_values, shape, table_values, static_cast<size_t>(c.R), kOffset, kQkEps,
                             gain_values, 1);
  };
  const Doubles values = gather(x), gain_values = to_doubles(gains), d_out = gather(dy);
  const Doubles want_y = value(values, gain_values);
  const Doubles want_dx =
      central_differences([&](const Doubles& v) { return dot(value(v, gain_values), d_out); }, values);
  Doubles want_d_gains =
      central_differences([&](const Doubles& v) { return dot(value(values, v), d_out); }, gain_values);
  const Doubles before = to_doubles(d_gains);
  for (size_t i = 0; i < before.size(); ++i) want_d_gains[i] += before[i];

  Buffer raw(c.dtype, {c.B, c.T, c.H, c.D}), scratch(DType::f32, {3 * row_sum_parts(Device::kCpu), c.D});
  qk_norm_gain_forward({.x = x,
                        .raw = raw,
                        .rstd = rstd,
                        .gains = pair(gains),
                        .table = table,
                        .position_offset = kOffset,
                        .eps = kQkEps},
                       stream);
  expect_near(x, want_y, tolerance, "y");
  EXPECT_EQ(gather(raw), values);
  qk_norm_gain_backward({.dy = dy,
                         .d_gains = pair(d_gains),
                         .raw = raw,
                         .rstd = rstd,
                         .gains = pair(gains),
                         .table = table,
                         .position_offset = kOffset,
                         .scratch = scratch},
                        stream);
  double largest = 1;
  for (const double r : to_doubles(rstd)) largest = std::max(largest, r);
  expect_near(dy, want_dx, largest * 4 * tolerance + 1e-8, "dx");
  expect_near(d_gains.tensor().reshape({1, 1, 2, c.D}), want_d_gains, 1e-5, "d_gains");
}

TEST_P(QkNorm, LeavesOtherColumnsUnchanged) {
  const Doubles before = to_doubles(packed), d_before = to_doubles(d_packed);
  qk_norm_forward(x, {}, table, kOffset, kQkEps, stream);
  qk_norm_forward(x, rstd, table, kOffset, kQkEps, stream);
  qk_norm_backward(dy, x, rstd, table, kOffset, stream);
  const Doubles after = to_doubles(packed), d_after = to_doubles(d_packed);
  const size_t width = (shape.H + 2) * shape.D;
  for (size_t i = 0; i < after.size(); ++i)
    if (i % width < shape.D || i % width >= width - shape.D) {
      ASSERT_EQ(after[i], before[i]) << i;
      ASSERT_EQ(d_after[i], d_before[i]) << i;
    }
}

std::vector<QkNormCase> qk_norm_cases() {
  std::vector<QkNormCase> all;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [D, R] :
         {std::pair{1, 0}, {8, 8}, {31, 0}, {33, 32}, {64, 64}, {64, 0}, {80, 20}, {128, 128}})
      all.push_back({dtype, 2, D == 64 ? 5 : 2, 2, D, R});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, QkNorm, ::testing::ValuesIn(qk_norm_cases()), qk_norm_case_name);

TEST(QkNormEquals, NormThenRope) {
  Stream stream;
  Buffer table(DType::f32, {7, 16}), rstd(DType::f32, {1, 7, 3});
  rope_table(table, 10000);
  Buffer fused = random_tensor(DType::f32, {1, 7, 3, 16}, 1),
         apart = random_tensor(DType::f32, {1, 7, 3, 16}, 1);
  qk_norm_forward(fused, rstd, table, 0, kQkEps, stream);
  qk_norm_forward(apart, rstd, {}, 0, kQkEps, stream);
  rope_forward(apart, table, 0, stream);
  expect_close(fused, to_doubles(apart), 4 * unit_roundoff(DType::f32), "y");
}

}  // namespace
}  // namespace ingot::test
