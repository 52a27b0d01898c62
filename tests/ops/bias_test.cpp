#include "ingot/ops/bias.h"

#include <gtest/gtest.h>

#include "ingot/core/parallel.h"
#include "tests/reference/error_of.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

struct BiasCase {
  DType dtype;
  int64_t N, C;
};

std::string bias_case_name(const ::testing::TestParamInfo<BiasCase>& info) {
  return fmt::format("{}_{}x{}", name(info.param.dtype), info.param.N, info.param.C);
}

class Bias : public ::testing::TestWithParam<BiasCase> {
 protected:
  BiasCase c = GetParam();
  Stream stream;
  Buffer y = random_tensor(c.dtype, {c.N, c.C}, 1), b = random_tensor(DType::f32, {c.C}, 2);
  Buffer db = random_tensor(DType::f32, {c.C}, 3), scratch{DType::f32, {num_threads(), c.C}};
  size_t rows = static_cast<size_t>(c.N), width = static_cast<size_t>(c.C);
};

TEST_P(Bias, ForwardAddsToEveryRow) {
  Doubles want = to_doubles(y);
  const Doubles b_values = to_doubles(b);
  for (size_t i = 0; i < want.size(); ++i) want[i] += b_values[i % width];
  bias_forward(y, b, stream);
  expect_close(y, want, unit_roundoff(c.dtype) + unit_roundoff(DType::f32), "y");
}

TEST_P(Bias, BackwardAddsColumnSums) {
  Doubles want = to_doubles(db);
  const Doubles values = to_doubles(y);
  for (size_t i = 0; i < values.size(); ++i) want[i % width] += values[i];
  bias_backward(db, y, scratch, stream);
  // There are N additions of terms near 1, each rounded at a sum near sqrt(N).
  const double n = static_cast<double>(c.N);
  expect_close(db, want, 2 * std::sqrt(n) * unit_roundoff(DType::f32), "db", std::sqrt(n) + 2);
}

TEST_P(Bias, BackwardIsDeterministic) {
  Buffer again(DType::f32, {c.C});
  assign(again, to_doubles(db));
  bias_backward(db, y, scratch, stream);
  bias_backward(again, y, scratch, stream);
  EXPECT_EQ(to_doubles(again), to_doubles(db));
}

std::vector<BiasCase> bias_cases() {
  std::vector<BiasCase> all;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t C : {1, 31, 32, 33, 257})
      for (int64_t N : {1, 3, 67}) all.push_back({dtype, N, C});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Bias, ::testing::ValuesIn(bias_cases()), bias_case_name);

TEST(BiasErrors, NameTheOperand) {
  Stream stream;
  Buffer y = zeros(DType::f32, {2, 8}), b = zeros(DType::f32, {7});
  EXPECT_EQ(error_of([&] { bias_forward(y, b, stream); }), "bias_forward: b must be (8), got (7)");
}

}  // namespace
}  // namespace ingot::test
