#include "ingot/ops/activation.h"

#include <gtest/gtest.h>

#include "ingot/core/parallel.h"
#include "ingot/ops/elementwise/activation_rules.h"
#include "ingot/ops/simd/vec_math.h"
#include "tests/reference/activation.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

constexpr Activation kKinds[] = {Activation::kGeluTanh, Activation::kGeluExact, Activation::kRelu2};

std::string kind_name(Activation kind) {
  return kind == Activation::kGeluTanh    ? "gelu_tanh"
         : kind == Activation::kGeluExact ? "gelu_exact"
                                          : "relu2";
}

struct ActivationCase {
  DType dtype;
  int64_t N, F;
  Activation kind;
  bool has_bias;
};

std::string activation_case_name(const ::testing::TestParamInfo<ActivationCase>& info) {
  const ActivationCase& c = info.param;
  return fmt::format("{}_{}x{}_{}_{}", name(c.dtype), c.N, c.F, kind_name(c.kind),
                     c.has_bias ? "bias" : "plain");
}

// The tolerance is a dozen f32 roundings and one to the dtype.
double tolerance(DType dtype) { return unit_roundoff(dtype) + 12 * unit_roundoff(DType::f32); }

class ActivationOp : public ::testing::TestWithParam<ActivationCase> {
 protected:
  ActivationCase c = GetParam();
  Stream stream;
  Buffer x = random_tensor(c.dtype, {c.N, c.F}, 1, 2.0), dy = random_tensor(c.dtype, {c.N, c.F}, 2);
  Buffer bias_values = random_tensor(DType::f32, {c.F}, 3);
  Tensor bias = c.has_bias ? bias_values.tensor() : Tensor{};
  Buffer y{c.dtype, {c.N, c.F}}, dx{c.dtype, {c.N, c.F}}, dbias = zeros(DType::f32, {c.F});
  Tensor dbias_wanted = c.has_bias ? dbias.tensor() : Tensor{};
  Buffer scratch{DType::f32, {num_threads(), c.F}};

  ActivationBackwardOperands operands(const Tensor& to, const Tensor& sums) {
    return {.dx = to, .dbias = sums, .dy = dy, .x = x, .bias = bias, .kind = c.kind, .scratch = scratch};
  }
  // Returns the arguments x + bias, computed in double and rounded once like the op does.
  Doubles arguments() {
    Doubles values = to_doubles(x);
    const Doubles b = to_doubles(bias_values);
    for (size_t i = 0; c.has_bias && i < values.size(); ++i)
      values[i] = static_cast<float>(values[i] + b[i % static_cast<size_t>(c.F)]);
    return values;
  }
  Doubles reference() {
    Doubles values = arguments();
    for (double& v : values) v = activation_reference(c.kind, v);
    return values;
  }
  Doubles gradient() {
    Doubles values = arguments();
    const Doubles g = to_doubles(dy);
    constexpr double h = 1e-5;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] =
          g[i] * (activation_reference(c.kind, values[i] + h) - activation_reference(c.kind, values[i] - h)) /
          (2 * h);
    return values;
  }
};

TEST_P(ActivationOp, ForwardMatchesReference) {
  activation_forward(y, x, bias, c.kind, stream);
  expect_close(y, reference(), tolerance(c.dtype), "y");
}

TEST_P(ActivationOp, ForwardWorksInPlace) {
  activation_forward(y, x, bias, c.kind, stream);
  activation_forward(x, x, bias, c.kind, stream);
  EXPECT_EQ(to_doubles(x), to_doubles(y));
}

TEST_P(ActivationOp, BackwardMatchesCentralDifferences) {
  activation_backward(operands(dx, dbias_wanted), stream);
  const Doubles want = gradient();
  // f' is of order 1; near its kink, relu2's difference quotient is off by h.
  expect_close(dx, want, tolerance(c.dtype) + 2e-5 * (c.kind == Activation::kRelu2) + 1e-8, "dx", 2);
  if (!c.has_bias) return;
  Doubles sums(static_cast<size_t>(c.F));
  for (size_t i = 0; i < want.size(); ++i) sums[i % sums.size()] += want[i];
  expect_close(dbias, sums, 1e-5, "dbias", std::sqrt(static_cast<double>(c.N)) * 4);
}

TEST_P(ActivationOp, BackwardMayOverwriteItsInputs) {
  activation_backward(operands(dx, {}), stream);
  const Doubles want = to_doubles(dx), dy_values = to_doubles(dy);
  activation_backward(operands(dy, {}), stream);
  EXPECT_EQ(to_doubles(dy), want);
  assign(dy, dy_values);
  activation_backward(operands(x, {}), stream);
  EXPECT_EQ(to_doubles(x), want);
}

TEST_P(ActivationOp, BiasGradientAccumulatesAndInputGradientOverwrites) {
  if (!c.has_bias) return;
  activation_backward(operands(dx, dbias), stream);
  Doubles twice = to_doubles(dbias);
  const Doubles dx_once = to_doubles(dx);
  for (double& v : twice) v *= 2;
  activation_backward(operands(dx, dbias), stream);
  expect_close(dbias, twice, 4 * unit_roundoff(DType::f32), "dbias");
  EXPECT_EQ(to_doubles(dx), dx_once);
}

std::vector<ActivationCase> activation_cases() {
  std::vector<ActivationCase> all;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (Activation kind : kKinds)
      for (int64_t F : {1, 31, 32, 33, 257})
        for (bool has_bias : {true, false}) all.push_back({dtype, F == 257 ? 67 : 3, F, kind, has_bias});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, ActivationOp, ::testing::ValuesIn(activation_cases()), activation_case_name);

// Checks value and derivative over the whole range where they are curved; the
// value's error is relative above 1.
template <typename Rule>
void expect_rule_is_precise(double (*value)(double), double value_tolerance, double derivative_tolerance) {
  for (float x = -15.0f; x < 15.0f; x += 0.00173f) {
    const double want = value(x);
    ASSERT_NEAR(Rule::value(vec::splat(x))[0], want, value_tolerance * std::max(1.0, std::abs(want))) << x;
    const double h = 1e-5, slope = (value(x + h) - value(x - h)) / (2 * h);
    ASSERT_NEAR(Rule::derivative(vec::splat(x))[0], slope, derivative_tolerance) << x;
  }
}

TEST(ActivationRules, GeluExactIsWithin2e7) {
  expect_rule_is_precise<GeluExactRule<VecMath>>(
      [](double x) { return activation_reference(Activation::kGeluExact, x); }, 2e-7, 3e-7);
}

TEST(ActivationRules, GeluTanhIsWithin2e7) {
  expect_rule_is_precise<GeluTanhRule<VecMath>>(
      [](double x) { return activation_reference(Activation::kGeluTanh, x); }, 2e-7, 5e-7);
}

TEST(ActivationRules, SiluIsWithin2e7) {
  expect_rule_is_precise<SiluRule<VecMath>>(silu_reference, 2e-7, 3e-7);
}

TEST(ActivationRules, FarFromZeroActivationsAreTheIdentityOrZero) {
  for (float x : {20.0f, 100.0f, 1e4f}) {
    EXPECT_EQ(GeluExactRule<VecMath>::value(vec::splat(x))[0], x);
    EXPECT_EQ(GeluTanhRule<VecMath>::value(vec::splat(x))[0], x);
    EXPECT_EQ(GeluExactRule<VecMath>::value(vec::splat(-x))[0], 0.0f);
    EXPECT_EQ(GeluTanhRule<VecMath>::value(vec::splat(-x))[0], 0.0f);
    EXPECT_EQ(GeluExactRule<VecMath>::derivative(vec::splat(x))[0], 1.0f);
    EXPECT_EQ(GeluTanhRule<VecMath>::derivative(vec::splat(x))[0], 1.0f);
    EXPECT_EQ(GeluExactRule<VecMath>::derivative(vec::splat(-x))[0], 0.0f);
    EXPECT_EQ(GeluTanhRule<VecMath>::derivative(vec::splat(-x))[0], 0.0f);
  }
}

TEST(ActivationRules, NaNStaysNaN) {
  const vec::Vec nan = vec::splat(std::nanf(""));
  EXPECT_TRUE(std::isnan(GeluExactRule<VecMath>::value(nan)[0]));
  EXPECT_TRUE(std::isnan(GeluTanhRule<VecMath>::value(nan)[0]));
  EXPECT_TRUE(std::isnan(Relu2Rule<VecMath>::value(nan)[0]));
  EXPECT_TRUE(std::isnan(SiluRule<VecMath>::value(nan)[0]));
}

class SwiGlu : public ::testing::TestWithParam<std::pair<DType, int64_t>> {
 protected:
  DType dtype = GetParam().first;
  int64_t F = GetParam().second, N = F == 257 ? 67 : 3;
  Stream stream;
  Buffer gate_up = random_tensor(dtype, {N, 2 * F}, 1, 2.0), dy = random_tensor(dtype, {N, F}, 2);
  Buffer y{dtype, {N, F}}, d_gate_up{dtype, {N, 2 * F}};
};

TEST_P(SwiGlu, ForwardMatchesReference) {
  swiglu_forward(y, gate_up, stream);
  expect_close(y, swiglu_reference(to_doubles(gate_up), static_cast<size_t>(F)), tolerance(dtype), "y");
}

TEST_P(SwiGlu, BackwardMatchesCentralDifferencesAndMayBeInPlace) {
  swiglu_backward(d_gate_up, dy, gate_up, stream);
  // Each output depends on one gate and one up value, so all gates can be varied at once, and then all ups.
  const Doubles values = to_doubles(gate_up), g = to_doubles(dy);
  Doubles want(values.size());
  const double h = 1e-5;
  const size_t width = static_cast<size_t>(F);
  for (size_t half : {size_t{0}, width}) {
    Doubles above = values, below = values;
    for (size_t i = 0; i < g.size(); ++i) {
      const size_t at = i / width * 2 * width + half + i % width;
      above[at] += h;
      below[at] -= h;
    }
    above = swiglu_reference(above, width);
    below = swiglu_reference(below, width);
    for (size_t i = 0; i < g.size(); ++i)
      want[i / width * 2 * width + half + i % width] = g[i] * (above[i] - below[i]) / (2 * h);
  }
  expect_close(d_gate_up, want, tolerance(dtype) + 1e-8, "d_gate_up", 4);
  const Doubles apart = to_doubles(d_gate_up);
  swiglu_backward(gate_up, dy, gate_up, stream);
  EXPECT_EQ(to_doubles(gate_up), apart);
}

std::vector<std::pair<DType, int64_t>> swiglu_cases() {
  std::vector<std::pair<DType, int64_t>> all;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t F : {1, 31, 32, 33, 257}) all.emplace_back(dtype, F);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, SwiGlu, ::testing::ValuesIn(swiglu_cases()), [](const auto& info) {
  return fmt::format("{}_{}", name(info.param.first), info.param.second);
});

TEST(ActivationErrors, NameTheOperand) {
  Stream stream;
  Buffer x = zeros(DType::f32, {2, 8}), y = zeros(DType::f32, {2, 8}), bias = zeros(DType::f32, {7});
  EXPECT_EQ(error_of([&] { activation_forward(y, x, bias, Activation::kRelu2, stream); }),
            "activation: bias must be (8), got (7)");
  EXPECT_EQ(error_of([&] { swiglu_forward(y, x, stream); }), "swiglu_forward: y must be (2, 4), got (2, 8)");
  Buffer odd = zeros(DType::f32, {2, 7});
  EXPECT_EQ(error_of([&] { swiglu_forward(y, odd, stream); }),
            "swiglu_forward: gate_up must be (N, 2F) and contiguous, got (2, 7)");
}

}  // namespace
}  // namespace ingot::test
