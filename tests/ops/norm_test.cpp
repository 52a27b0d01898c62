// RMSNorm and LayerNorm on the CPU.
#include "ingot/ops/norm.h"

#include <gtest/gtest.h>

#include "ingot/core/parallel.h"
#include "tests/reference/error_of.h"
#include "tests/reference/layernorm.h"
#include "tests/reference/rmsnorm.h"

namespace ingot::test {
namespace {

constexpr float kEps = 1e-5f;

struct NormCase {
  bool is_layer;  // LayerNorm, otherwise RMSNorm, which has no bias
  DType dtype;
  int64_t N, C;
  bool has_weight, has_bias;
};

std::string norm_case_name(const ::testing::TestParamInfo<NormCase>& info) {
  const NormCase& c = info.param;
  return fmt::format("{}_{}x{}_{}{}", name(c.dtype), c.N, c.C, c.has_weight ? "weight" : "weightless",
                     !c.is_layer  ? ""
                     : c.has_bias ? "_bias"
                                  : "_biasless");
}

// The error is that of the f32 sums of C rounded terms (LayerNorm has two) and one rounding to the dtype.
double tolerance(const NormCase& c) {
  return 4 * unit_roundoff(c.dtype) +
         (c.is_layer ? 8 : 4) * unit_roundoff(DType::f32) * std::sqrt(static_cast<double>(c.C));
}

class Norm : public ::testing::TestWithParam<NormCase> {
 protected:
  NormCase c = GetParam();
  Stream stream;
  Buffer x = random_tensor(c.dtype, {c.N, c.C}, 1, 2.0);
  Buffer dy = random_tensor(c.dtype, {c.N, c.C}, 2);
  Buffer residual = random_tensor(c.dtype, {c.N, c.C}, 3);
  Buffer weight = random_tensor(DType::f32, {c.C}, 4), bias = random_tensor(DType::f32, {c.C}, 5);
  Tensor w = c.has_weight ? weight.tensor() : Tensor{}, b = c.has_bias ? bias.tensor() : Tensor{};
  Doubles w_values = c.has_weight ? to_doubles(w) : Doubles{},
          b_values = c.has_bias ? to_doubles(b) : Doubles{};
  Buffer y{c.dtype, {c.N, c.C}}, dx{c.dtype, {c.N, c.C}}, means{DType::f32, {c.N}}, rstd{DType::f32, {c.N}};
  Tensor mean = c.is_layer ? means.tensor() : Tensor{};
  Buffer dw = zeros(DType::f32, {c.C}), db = zeros(DType::f32, {c.C});
  Tensor dw_wanted = c.has_weight ? dw.tensor() : Tensor{}, db_wanted = c.has_bias ? db.tensor() : Tensor{};
  Buffer scratch{DType::f32, {2, num_threads(), c.C}};
  size_t width = static_cast<size_t>(c.C);

  void forward(const NormOperands& t) { (c.is_layer ? layernorm_forward : rmsnorm_forward)(t, stream); }
  void forward() { forward(operands(y)); }
  NormOperands operands(const Tensor& to, const Tensor& sum = {}, const Tensor& added = {}) const {
    return {.y = to,
            .sum = sum,
            .mean = mean,
            .rstd = rstd,
            .x = x,
            .residual = added,
            .w = w,
            .b = b,
            .eps = kEps};
  }
  void backward(const NormBackwardOperands& t) {
    (c.is_layer ? layernorm_backward : rmsnorm_backward)(t, stream);
  }
  NormBackwardOperands gradients(const Tensor& to, const Tensor& d_residual = {}) const {
    return {.dx = to, .dy = dy, .x = x, .w = w, .mean = mean, .rstd = rstd, .d_residual = d_residual};
  }
  // Runs backward with the gradients of the parameters.
  void backward_with_sums() {
    NormBackwardOperands t = gradients(dx);
    t.dw = dw_wanted;
    t.db = db_wanted;
    t.scratch = scratch;
    backward(t);
  }
  Doubles reference(const Doubles& x_values, const Doubles& weights, const Doubles& biases) const {
    return c.is_layer ? layernorm_reference(x_values, weights, biases, width, kEps)
                      : rmsnorm_reference(x_values, weights, width, kEps);
  }
  Doubles reference(const Doubles& values) const { return reference(values, w_values, b_values); }
  double loss(const Doubles& x_values, const Doubles& weights, const Doubles& biases) {
    return dot(reference(x_values, weights, biases), to_doubles(dy));
  }
};

TEST_P(Norm, ForwardMatchesReference) {
  forward();
  expect_close(y, reference(to_doubles(x)), tolerance(c), "y");
  Buffer without_statistics(c.dtype, {c.N, c.C});
  forward({.y = without_statistics, .x = x, .w = w, .b = b, .eps = kEps});
  EXPECT_EQ(to_doubles(without_statistics), to_doubles(y));
}

TEST_P(Norm, ForwardWorksInPlace) {
  const Doubles want = reference(to_doubles(x));
  forward(operands(x));
  expect_close(x, want, tolerance(c), "y");
}

TEST_P(Norm, ForwardAddsResidualAndMayOverwriteEither) {
  Doubles want_sum = to_doubles(x);
  const Doubles added = to_doubles(residual);
  for (size_t i = 0; i < want_sum.size(); ++i) want_sum[i] += added[i];
  Buffer sum(c.dtype, {c.N, c.C}), first_y(c.dtype, {c.N, c.C});
  forward(operands(first_y, sum, residual));
  expect_close(sum, want_sum, 2 * unit_roundoff(c.dtype), "sum");
  expect_close(first_y, reference(to_doubles(sum)), tolerance(c), "y");
  forward(operands(y, residual, residual));
  EXPECT_EQ(to_doubles(residual), to_doubles(sum));
  EXPECT_EQ(to_doubles(y), to_doubles(first_y));
  assign(residual, added);
  forward(operands(y, x, residual));
  EXPECT_EQ(to_doubles(x), to_doubles(sum));
  EXPECT_EQ(to_doubles(y), to_doubles(first_y));
}

TEST_P(Norm, ForwardMayWriteItsResultOverTheResidual) {
  Buffer sum(c.dtype, {c.N, c.C});
  forward(operands(y, sum, residual));
  forward(operands(residual, sum, residual));
  EXPECT_EQ(to_doubles(residual), to_doubles(y));
}

TEST_P(Norm, BackwardMatchesCentralDifferences) {
  forward();
  backward_with_sums();
  const Doubles x_values = to_doubles(x);
  const Doubles want =
      central_differences([&](const Doubles& v) { return loss(v, w_values, b_values); }, x_values);
  expect_close(dx, want, 4 * tolerance(c) + 1e-7, "dx");
  const double magnitude = std::sqrt(static_cast<double>(c.N));
  if (c.has_weight) {
    const auto by_weight = [&](const Doubles& v) { return loss(x_values, v, b_values); };
    expect_close(dw, central_differences(by_weight, w_values), 1e-5, "dw", magnitude);
  }
  if (c.has_bias) {
    const auto by_bias = [&](const Doubles& v) { return loss(x_values, w_values, v); };
    expect_close(db, central_differences(by_bias, b_values), 1e-5, "db", magnitude);
  }
}

TEST_P(Norm, BackwardAddsResidualGradientInPlace) {
  forward();
  backward(gradients(dx));
  Doubles want = to_doubles(residual);
  const Doubles own = to_doubles(dx);
  for (size_t i = 0; i < want.size(); ++i) want[i] += own[i];
  backward(gradients(residual, residual));
  expect_close(residual, want, 4 * unit_roundoff(c.dtype), "dx", 4);
  backward(gradients(dy));
  EXPECT_EQ(to_doubles(dy), own);
}

TEST_P(Norm, ParameterGradientsAccumulateAndInputGradientOverwrites) {
  forward();
  backward_with_sums();
  Doubles dw_twice = to_doubles(dw), db_twice = to_doubles(db);
  const Doubles dx_once = to_doubles(dx);
  for (double& v : dw_twice) v *= 2;
  for (double& v : db_twice) v *= 2;
  backward_with_sums();
  expect_close(dw, dw_twice, 4 * unit_roundoff(DType::f32), "dw");
  expect_close(db, db_twice, 4 * unit_roundoff(DType::f32), "db");
  EXPECT_EQ(to_doubles(dx), dx_once);
}

std::vector<NormCase> norm_cases(bool is_layer) {
  std::vector<NormCase> all;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t C : {1, 31, 32, 33, 257})
      for (bool has_weight : {true, false})
        for (bool has_bias : {true, false})
          if (is_layer || !has_bias)
            all.push_back(
                {is_layer, dtype, C == 32 ? 65 : 3, C, has_weight, has_bias});  // 65: several threads
  return all;
}

INSTANTIATE_TEST_SUITE_P(RmsNorm, Norm, ::testing::ValuesIn(norm_cases(false)), norm_case_name);
INSTANTIATE_TEST_SUITE_P(LayerNorm, Norm, ::testing::ValuesIn(norm_cases(true)), norm_case_name);

// With x = 4096 + deviation, the f32 rounding of x^2 alone is as large as the variance, so
// E[x^2] - E[x]^2 would be noise.
TEST(LayerNormPrecision, VarianceSurvivesALargeMean) {
  constexpr int64_t kC = 257;
  Stream stream;
  Buffer x = random_tensor(DType::f32, {2, kC}, 1), y(DType::f32, {2, kC});
  Doubles values = to_doubles(x);
  for (double& v : values) v = static_cast<float>(v + 4096);
  assign(x, values);
  layernorm_forward({.y = y, .x = x, .eps = kEps}, stream);
  // After kC additions the mean is rounded to half an ulp of 4096, which is 2^-12.
  expect_close(y, layernorm_reference(values, {}, {}, kC, kEps), 4 * 0x1p-12, "y");
}

TEST(NormErrors, NameTheOperand) {
  Stream stream;
  Buffer x = random_tensor(DType::f32, {2, 8}, 1), y = zeros(DType::f32, {2, 8});
  Buffer narrow = zeros(DType::f32, {7}), row = zeros(DType::f32, {8}), mean = zeros(DType::f32, {2});
  EXPECT_EQ(error_of([&] { rmsnorm_forward({.y = y, .x = x, .w = narrow, .eps = kEps}, stream); }),
            "rmsnorm: w must be (8), got (7)");
  EXPECT_EQ(error_of([&] { layernorm_forward({.y = y, .x = x, .w = narrow, .eps = kEps}, stream); }),
            "layernorm: w must be (8), got (7)");
  EXPECT_EQ(error_of([&] { layernorm_forward({.y = y, .x = x, .b = narrow, .eps = kEps}, stream); }),
            "layernorm: b must be (8), got (7)");
  EXPECT_EQ(error_of([&] { layernorm_forward({.y = y, .mean = mean, .x = x, .eps = kEps}, stream); }),
            "layernorm_forward: mean and rstd must both be given or both be absent");
  Buffer half(DType::f32, {num_threads(), 8}), dx = zeros(DType::f32, {2, 8});
  EXPECT_EQ(error_of([&] {
              layernorm_backward({.dx = dx,
                                  .dw = row,
                                  .db = row,
                                  .dy = y,
                                  .x = x,
                                  .w = row,
                                  .mean = mean,
                                  .rstd = mean,
                                  .scratch = half},
                                 stream);
            }).substr(0, 45),
            "RowSum: scratch must be f32 of at least " + fmt::format("{} x 8", num_threads()));
}

TEST(NormZero, ConstantRowHasFiniteGradient) {
  Stream stream;
  Buffer x = zeros(DType::f32, {1, 8}), y = zeros(DType::f32, {1, 8}), dx = zeros(DType::f32, {1, 8});
  Buffer mean = zeros(DType::f32, {1}), rstd = zeros(DType::f32, {1}),
         dy = random_tensor(DType::f32, {1, 8}, 2);
  layernorm_forward({.y = y, .mean = mean, .rstd = rstd, .x = x, .eps = kEps}, stream);
  layernorm_backward({.dx = dx, .dy = dy, .x = x, .mean = mean, .rstd = rstd}, stream);
  for (double v : to_doubles(dx)) EXPECT_TRUE(std::isfinite(v));
  rmsnorm_forward({.y = y, .rstd = rstd, .x = x, .eps = kEps}, stream);
  rmsnorm_backward({.dx = dx, .dy = dy, .x = x, .rstd = rstd}, stream);
  for (double v : to_doubles(dx)) EXPECT_TRUE(std::isfinite(v));
}

}  // namespace
}  // namespace ingot::test
