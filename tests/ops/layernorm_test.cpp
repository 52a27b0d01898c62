#include "ingot/ops/norm.h"

#include <gtest/gtest.h>

#include "ingot/core/parallel.h"
#include "tests/reference/layernorm.h"

namespace ingot::test {
namespace {

constexpr float kEps = 1e-5f;

struct LayernormCase {
  DType dtype;
  int64_t N, C;
  bool has_weight, has_bias;
};

std::string layernorm_case_name(const ::testing::TestParamInfo<LayernormCase>& info) {
  const LayernormCase& c = info.param;
  return fmt::format("{}_{}x{}_{}_{}", name(c.dtype), c.N, c.C, c.has_weight ? "weight" : "weightless",
                     c.has_bias ? "bias" : "biasless");
}

// The error is that of two f32 sums of C rounded terms and one rounding to the dtype.
double tolerance(const LayernormCase& c) {
  return 4 * unit_roundoff(c.dtype) + 8 * unit_roundoff(DType::f32) * std::sqrt(static_cast<double>(c.C));
}

class LayerNorm : public ::testing::TestWithParam<LayernormCase> {
 protected:
  LayernormCase c = GetParam();
  Stream stream;
  Buffer x = random_tensor(c.dtype, {c.N, c.C}, 1, 2.0);
  Buffer dy = random_tensor(c.dtype, {c.N, c.C}, 2);
  Buffer residual = random_tensor(c.dtype, {c.N, c.C}, 3);
  Buffer weight = random_tensor(DType::f32, {c.C}, 4), bias = random_tensor(DType::f32, {c.C}, 5);
  Tensor w = c.has_weight ? weight.tensor() : Tensor{}, b = c.has_bias ? bias.tensor() : Tensor{};
  Doubles w_values = c.has_weight ? to_doubles(w) : Doubles{},
          b_values = c.has_bias ? to_doubles(b) : Doubles{};
  Buffer y{c.dtype, {c.N, c.C}}, dx{c.dtype, {c.N, c.C}}, mean{DType::f32, {c.N}}, rstd{DType::f32, {c.N}};
  Buffer dw = zeros(DType::f32, {c.C}), db = zeros(DType::f32, {c.C});
  Tensor dw_wanted = c.has_weight ? dw.tensor() : Tensor{}, db_wanted = c.has_bias ? db.tensor() : Tensor{};
  Buffer scratch{DType::f32, {2, num_threads(), c.C}};
  size_t width = static_cast<size_t>(c.C);

  void forward() {
    layernorm_forward({.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = b, .eps = kEps}, stream);
  }
  // The operands of backward with the gradients of the parameters.
  NormBackwardOperands with_sums() const {
    return {.dx = dx,
            .dw = dw_wanted,
            .db = db_wanted,
            .dy = dy,
            .x = x,
            .w = w,
            .mean = mean,
            .rstd = rstd,
            .scratch = scratch};
  }
  Doubles reference(const Doubles& values) {
    return layernorm_reference(values, w_values, b_values, width, kEps);
  }
  double loss(const Doubles& x_values, const Doubles& weights, const Doubles& biases) {
    return dot(layernorm_reference(x_values, weights, biases, width, kEps), to_doubles(dy));
  }
};

TEST_P(LayerNorm, ForwardMatchesReference) {
  forward();
  expect_close(y, reference(to_doubles(x)), tolerance(c), "y");
  Buffer without_statistics(c.dtype, {c.N, c.C});
  layernorm_forward({.y = without_statistics, .x = x, .w = w, .b = b, .eps = kEps}, stream);
  EXPECT_EQ(to_doubles(without_statistics), to_doubles(y));
}

TEST_P(LayerNorm, ForwardWorksInPlace) {
  const Doubles want = reference(to_doubles(x));
  layernorm_forward({.y = x, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = b, .eps = kEps}, stream);
  expect_close(x, want, tolerance(c), "y");
}

TEST_P(LayerNorm, ForwardAddsResidualAndMayOverwriteEither) {
  Doubles want_sum = to_doubles(x);
  const Doubles added = to_doubles(residual);
  for (size_t i = 0; i < want_sum.size(); ++i) want_sum[i] += added[i];
  Buffer sum(c.dtype, {c.N, c.C}), first_y(c.dtype, {c.N, c.C});
  layernorm_forward({.y = first_y,
                     .sum = sum,
                     .mean = mean,
                     .rstd = rstd,
                     .x = x,
                     .residual = residual,
                     .w = w,
                     .b = b,
                     .eps = kEps},
                    stream);
  expect_close(sum, want_sum, 2 * unit_roundoff(c.dtype), "sum");
  expect_close(first_y, reference(to_doubles(sum)), tolerance(c), "y");
  layernorm_forward({.y = y,
                     .sum = residual,
                     .mean = mean,
                     .rstd = rstd,
                     .x = x,
                     .residual = residual,
                     .w = w,
                     .b = b,
                     .eps = kEps},
                    stream);
  EXPECT_EQ(to_doubles(residual), to_doubles(sum));
  EXPECT_EQ(to_doubles(y), to_doubles(first_y));
  assign(residual, added);
  layernorm_forward({.y = y,
                     .sum = x,
                     .mean = mean,
                     .rstd = rstd,
                     .x = x,
                     .residual = residual,
                     .w = w,
                     .b = b,
                     .eps = kEps},
                    stream);
  EXPECT_EQ(to_doubles(x), to_doubles(sum));
  EXPECT_EQ(to_doubles(y), to_doubles(first_y));
}

TEST_P(LayerNorm, BackwardMatchesCentralDifferences) {
  forward();
  layernorm_backward(with_sums(), stream);
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

TEST_P(LayerNorm, BackwardAddsResidualGradientInPlace) {
  forward();
  layernorm_backward({.dx = dx, .dy = dy, .x = x, .w = w, .mean = mean, .rstd = rstd}, stream);
  Doubles want = to_doubles(residual);
  const Doubles own = to_doubles(dx);
  for (size_t i = 0; i < want.size(); ++i) want[i] += own[i];
  layernorm_backward(
      {.dx = residual, .dy = dy, .x = x, .w = w, .mean = mean, .rstd = rstd, .d_residual = residual}, stream);
  expect_close(residual, want, 4 * unit_roundoff(c.dtype), "dx", 4);
  layernorm_backward({.dx = dy, .dy = dy, .x = x, .w = w, .mean = mean, .rstd = rstd}, stream);
  EXPECT_EQ(to_doubles(dy), own);
}

TEST_P(LayerNorm, ParameterGradientsAccumulateAndInputGradientOverwrites) {
  forward();
  layernorm_backward(with_sums(), stream);
  Doubles dw_twice = to_doubles(dw), db_twice = to_doubles(db);
  const Doubles dx_once = to_doubles(dx);
  for (double& v : dw_twice) v *= 2;
  for (double& v : db_twice) v *= 2;
  layernorm_backward(with_sums(), stream);
  expect_close(dw, dw_twice, 4 * unit_roundoff(DType::f32), "dw");
  expect_close(db, db_twice, 4 * unit_roundoff(DType::f32), "db");
  EXPECT_EQ(to_doubles(dx), dx_once);
}

std::vector<LayernormCase> layernorm_cases() {
  std::vector<LayernormCase> all;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t C : {1, 31, 32, 33, 257}) {
      const int64_t N = C == 32 ? 65 : 3;  // 65 rows use several threads
      all.push_back({dtype, N, C, true, true});
      all.push_back({dtype, N, C, true, false});
      all.push_back({dtype, N, C, false, true});
      all.push_back({dtype, N, C, false, false});
    }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, LayerNorm, ::testing::ValuesIn(layernorm_cases()), layernorm_case_name);

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

TEST(LayerNormErrors, NameTheOperand) {
  Stream stream;
  Buffer x = random_tensor(DType::f32, {2, 8}, 1), y = zeros(DType::f32, {2, 8});
  Buffer narrow = zeros(DType::f32, {7}), row = zeros(DType::f32, {8}), mean = zeros(DType::f32, {2});
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message([&] { layernorm_forward({.y = y, .x = x, .w = narrow, .eps = kEps}, stream); }),
            "layernorm: w must be (8), got (7)");
  EXPECT_EQ(message([&] { layernorm_forward({.y = y, .x = x, .b = narrow, .eps = kEps}, stream); }),
            "layernorm: b must be (8), got (7)");
  EXPECT_EQ(message([&] { layernorm_forward({.y = y, .mean = mean, .x = x, .eps = kEps}, stream); }),
            "layernorm_forward: mean and rstd must both be given or both be absent");
  Buffer half(DType::f32, {num_threads(), 8}), dx = zeros(DType::f32, {2, 8});
  EXPECT_EQ(message([&] {
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

TEST(LayerNormZero, ConstantRowHasFiniteGradient) {
  Stream stream;
  Buffer x = zeros(DType::f32, {1, 8}), y = zeros(DType::f32, {1, 8}), dx = zeros(DType::f32, {1, 8});
  Buffer mean = zeros(DType::f32, {1}), rstd = zeros(DType::f32, {1}),
         dy = random_tensor(DType::f32, {1, 8}, 2);
  layernorm_forward({.y = y, .mean = mean, .rstd = rstd, .x = x, .eps = kEps}, stream);
  layernorm_backward({.dx = dx, .dy = dy, .x = x, .mean = mean, .rstd = rstd}, stream);
  for (double v : to_doubles(dx)) EXPECT_TRUE(std::isfinite(v));
}

}  // namespace
}  // namespace ingot::test
