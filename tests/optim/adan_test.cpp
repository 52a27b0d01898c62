#include "ingot/optim/rules/adan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/optim/optimizer_fixture.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

// Algorithm 1 of the paper for one element, with the paper's coefficients, k from 0 and no restart.
struct AdanElement {
  double theta, m = 0, v = 0, n = 0, last_g = 0;
  void step(double g, double eta, double lambda, int k, double beta1 = 0.02, double beta2 = 0.08,
            double beta3 = 0.01, double epsilon = 1e-16) {
    const double change = g - last_g;
    if (k == 0) {  // m_0 = g_0, n_0 = g_0^2, and there is no difference yet
      m = g;
      n = g * g;
    } else {
      m = (1 - beta1) * m + beta1 * g;
      v = k == 1 ? change : (1 - beta2) * v + beta2 * change;  // v_1 = g_1 - g_0
      n = (1 - beta3) * n + beta3 * std::pow(g + (1 - beta2) * change, 2);
    }
    theta = (theta - eta / std::sqrt(n + epsilon) * (m + (1 - beta2) * v)) / (1 + lambda * eta);
    last_g = g;
  }
};

// Trains a parameter of n elements with the options, and compares it with the reference after every step.
void expect_reference(int64_t n, const GivenOptions& options,
                      void (*step)(AdanElement& element, double g, double eta, int k)) {
  Params params;
  params.add("w", ParamRole::kMatrix, {n, 1}, true);
  Optimizer optimizer({.lr = 0.01, .rule = {.kind = "adan", .options = options}}, params.list);
  Stream stream;
  std::vector<AdanElement> want;
  for (double x : to_doubles(params.list[0].w)) want.push_back({x});
  for (int t = 1; t <= 10; ++t) {
    params.draw_gradients(t, 1);
    const Doubles g = to_doubles(params.list[0].g);
    const double eta = 0.01 / t;
    optimizer.step({.lr = eta}, 0.5f, stream);
    Doubles expected;
    for (size_t i = 0; i < want.size(); ++i) {
      step(want[i], 0.5 * g[i], eta, t - 1);
      expected.push_back(want[i].theta);
    }
    expect_close(params.list[0].w, expected, t * 16 * unit_roundoff(DType::f32), "w");
  }
}

class AdanSizes : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AdanSizes, ::testing::Values(1, 31, 32, 33, 257, 70000));

TEST_P(AdanSizes, FollowsThePaper) {
  expect_reference(GetParam(), {},
                   [](AdanElement& element, double g, double eta, int k) { element.step(g, eta, 0.02, k); });
}

TEST(Adan, BetasAreOneMinusThePapers) {
  expect_reference(1000,
                   {{&Adan::Options::beta1, 0.9},
                    {&Adan::Options::beta2, 0.8},
                    {&Adan::Options::beta3, 0.95},
                    {&Adan::Options::eps, 1e-4},
                    {&Adan::Options::weight_decay, 0.5}},
                   [](AdanElement& element, double g, double eta, int k) {
                     element.step(g, eta, 0.5, k, 0.1, 0.2, 0.05, 1e-4);
                   });
}

TEST(Adan, KeepsFourNumbersPerElement) {
  Params params;
  params.add("w", ParamRole::kMatrix, {30, 20});
  const Optimizer optimizer({.rule = {.kind = "adan"}}, params.list);
  EXPECT_EQ(optimizer.state_bytes(), 16u * 30 * 20);
  std::vector<std::string> names;
  for (const Optimizer::State& state : optimizer.states()) names.push_back(state.name);
  EXPECT_THAT(names, ::testing::ElementsAre("m.w", "v.w", "n.w", "previous.w"));
}

TEST(Adan, RefusesOptionsOfOtherRules) {
  const auto refusal = [](const OptimizerConfig& config) { return error_of([&] { config.validate(); }); };
  EXPECT_EQ(refusal({.rule = {.kind = "adan", .options = {{&Adan::Options::beta3, 1.0}}}}),
            "optimizer.beta3 must lie in [0, 1), got 1");
  EXPECT_EQ(refusal({.groups = {{.match = {"*"}, .rule = {.options = {{&Adan::Options::beta3, 0.9}}}}}}),
            "optimizer.group 1: beta3 is no key of adamw, which reads beta1, beta2, eps, weight_decay");
}

}  // namespace
}  // namespace ingot::test
