#include "ingot/ops/norm.h"

#include <gtest/gtest.h>

#include "ingot/core/parallel.h"
#include "tests/reference/rmsnorm.h"

namespace ingot::test {
namespace {

constexpr float kEps = 1e-5f;

struct RmsnormCase {
  DType dtype;
  int64_t N, C;
  bool has_weight;
};

std::string rmsnorm_case_name(const ::testing::TestParamInfo<RmsnormCase>& info) {
  const RmsnormCase& c = info.param;
  return fmt::format("{}_{}x{}_{}", name(c.dtype), c.N, c.C, c.has_weight ? "weight" : "weightless");
}

// The error is that of an f32 sum of C rounded products and one rounding to the dtype.
double tolerance(const RmsnormCase& c) {
  return 4 * unit_roundoff(c.dtype) + 4 * unit_roundoff(DType::f32) * std::sqrt(static_cast<double>(c.C));
}

class RmsNorm : public ::testing::TestWithParam<RmsnormCase> {
 protected:
  RmsnormCase c = GetParam();
  Stream stream;
  Buffer x = random_tensor(c.dtype, {c.N, c.C}, 1, 2.0);
  Buffer dy = random_tensor(c.dtype, {c.N, c.C}, 2);
  Buffer residual = random_tensor(c.dtype, {c.N, c.C}, 3);
  Buffer weight = random_tensor(DType::f32, {c.C}, 4);
  Tensor w = c.has_weight ? weight.tensor() : Tensor{};
  Doubles w_values = c.has_weight ? to_doubles(w) : Doubles{};
  Buffer y{c.dtype, {c.N, c.C}}, dx{c.dtype, {c.N, c.C}}, rstd{DType::f32, {c.N}};
  Buffer scratch{DType::f32, {num_threads(), c.C}};
  size_t width = static_cast<size_t>(c.C);

  void forward() { rmsnorm_forward({.y = y, .rstd = rstd, .x = x, .w = w, .eps = kEps}, stream); }
  // The operands of backward with the gradient of the weight.
  NormBackwardOperands with_sum(const Tensor& dw) const {
    return {.dx = dx, .dw = dw, .dy = dy, .x = x, .w = w, .rstd = rstd, .scratch = scratch};
  }
  double loss(const Doubles& x_values, const Doubles& weights) {
    return dot(rmsnorm_reference(x_values, weights, width, kEps), to_doubles(dy));
  }
};

TEST_P(RmsNorm, ForwardMatchesReference) {
  forward();
  expect_close(y, rmsnorm_reference(to_doubles(x), w_values, width, kEps), tolerance(c), "y");
}

TEST_P(RmsNorm, ForwardWorksInPlace) {
  const Doubles want = rmsnorm_reference(to_doubles(x), w_values, width, kEps);
  rmsnorm_forward({.y = x, .rstd = rstd, .x = x, .w = w, .eps = kEps}, stream);
  expect_close(x, want, tolerance(c), "y");
}

TEST_P(RmsNorm, ForwardAddsResidualAndMayOverwriteIt) {
  Doubles sum = to_doubles(x);
  const Doubles added = to_doubles(residual);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
  rmsnorm_forward({.y = y, .sum = residual, .rstd = rstd, .x = x, .residual = residual, .w = w, .eps = kEps},
                  stream);
  expect_close(residual, sum, 2 * unit_roundoff(c.dtype), "sum");
  expect_close(y, rmsnorm_reference(to_doubles(residual), w_values, width, kEps), tolerance(c), "y");
}

TEST_P(RmsNorm, ForwardMayWriteItsResultOverTheResidual) {
  Buffer sum(c.dtype, {c.N, c.C});
  rmsnorm_forward({.y = y, .sum = sum, .rstd = rstd, .x = x, .residual = residual, .w = w, .eps = kEps},
                  stream);
  rmsnorm_forward(
      {.y = residual, .sum = sum, .rstd = rstd, .x = x, .residual = residual, .w = w, .eps = kEps}, stream);
  EXPECT_EQ(to_doubles(residual), to_doubles(y));
}

TEST_P(RmsNorm, BackwardMatchesCentralDifferences) {
  Buffer dw = zeros(DType::f32, {c.C});
  forward();
  rmsnorm_backward({.dx = dx,
                    .dw = c.has_weight ? dw.tensor() : Tensor{},
                    .dy = dy,
                    .x = x,
                    .w = w,
                    .rstd = rstd,
                    .scratch = scratch},
                   stream);
  const Doubles want =
      central_differences([&](const Doubles& v) { return loss(v, w_values); }, to_doubles(x));
  expect_close(dx, want, 4 * tolerance(c) + 1e-7, "dx");
  if (!c.has_weight) return;
  const Doubles want_dw =
      central_differences([&](const Doubles& v) { return loss(to_doubles(x), v); }, w_values);
  expect_close(dw, want_dw, 1e-5, "dw", std::sqrt(static_cast<double>(c.N)));
}

TEST_P(RmsNorm, BackwardAddsResidualGradientInPlace) {
  forward();
  rmsnorm_backward({.dx = dx, .dy = dy, .x = x, .w = w, .rstd = rstd, .scratch = scratch}, stream);
  Doubles want = to_doubles(residual);
  const Doubles own = to_doubles(dx);
  for (size_t i = 0; i < want.size(); ++i) want[i] += own[i];
  rmsnorm_backward(
      {.dx = residual, .dy = dy, .x = x, .w = w, .rstd = rstd, .d_residual = residual, .scratch = scratch},
      stream);
  expect_close(residual, want, 4 * unit_roundoff(c.dtype), "dx", 4);
}

TEST_P(RmsNorm, WeightGradientAccumulatesAndInputGradientOverwrites) {
  if (!c.has_weight) return;
  Buffer dw = zeros(DType::f32, {c.C});
  forward();
  rmsnorm_backward(with_sum(dw), stream);
  const Doubles once = to_doubles(dw), dx_once = to_doubles(dx);
  rmsnorm_backward(with_sum(dw), stream);
  Doubles twice = once;
  for (double& v : twice) v *= 2;
  expect_close(dw, twice, 4 * unit_roundoff(DType::f32), "dw");
  EXPECT_EQ(to_doubles(dx), dx_once);
}

std::vector<RmsnormCase> rmsnorm_cases() {
  std::vector<RmsnormCase> all;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t C : {1, 31, 32, 33, 257})
      for (bool has_weight : {true, false}) all.push_back({dtype, C == 32 ? 65 : 3, C, has_weight});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, RmsNorm, ::testing::ValuesIn(rmsnorm_cases()), rmsnorm_case_name);

TEST(RmsNormErrors, NameTheOperand) {
  Stream stream;
  Buffer x = random_tensor(DType::f32, {2, 8}, 1), y = zeros(DType::f32, {2, 8});
  Buffer w = zeros(DType::f32, {7});
  try {
    rmsnorm_forward({.y = y, .x = x, .w = w, .eps = kEps}, stream);
    FAIL() << "a weight of the wrong width was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rmsnorm: w must be (8), got (7)");
  }
}

TEST(RmsNormZero, RowOfZerosHasFiniteGradient) {
  Stream stream;
  Buffer x = zeros(DType::f32, {1, 8}), y = zeros(DType::f32, {1, 8}), dx = zeros(DType::f32, {1, 8});
  Buffer rstd = zeros(DType::f32, {1}), dy = random_tensor(DType::f32, {1, 8}, 2);
  rmsnorm_forward({.y = y, .rstd = rstd, .x = x, .eps = kEps}, stream);
  rmsnorm_backward({.dx = dx, .dy = dy, .x = x, .rstd = rstd}, stream);
  for (double v : to_doubles(dx)) EXPECT_TRUE(std::isfinite(v));
}

}  // namespace
}  // namespace ingot::test
