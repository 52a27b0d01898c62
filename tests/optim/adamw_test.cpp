#include "ingot/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ingot/core/parallel.h"
#include "tests/reference/numeric.h"

namespace ingot::testing {
namespace {

// One element of AdamW in double, straight from the paper.
struct Reference {
  double w, m = 0, v = 0;
  void step(double g, const AdamWConfig& c, double lr, double decay, int t) {
    m = c.beta1 * m + (1 - c.beta1) * g;
    v = c.beta2 * v + (1 - c.beta2) * g * g;
    w -= lr * decay * w;
    w -= lr * (m / (1 - std::pow(c.beta1, t))) / (std::sqrt(v / (1 - std::pow(c.beta2, t))) + c.eps);
  }
};

constexpr AdamWConfig kConfig{
    .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_clip = 1};

class AdamWSizes : public ::testing::TestWithParam<int64_t> {};

TEST_P(AdamWSizes, FollowsTheReferenceAndClearsTheGradient) {
  const int64_t n = GetParam();
  Stream stream;
  Buffer w = random_tensor(DType::f32, {n}, 1), m = zeros(DType::f32, {n}), v = zeros(DType::f32, {n});
  Buffer compute(DType::bf16, {n});
  std::vector<Reference> want;
  for (double x : to_doubles(w)) want.push_back({x});
  for (int t = 1; t <= 5; ++t) {
    Buffer g = random_tensor(DType::f32, {n}, 100 + static_cast<uint32_t>(t));
    const Doubles gradient = to_doubles(g);
    adamw_update(w, compute, m, v, g, kConfig, {.lr = 0.01, .weight_decay = 0.1, .t = t, .grad_scale = 0.5f},
                 stream);
    Doubles expected;
    for (size_t i = 0; i < want.size(); ++i) {
      want[i].step(0.5 * gradient[i], kConfig, 0.01, 0.1, t);
      expected.push_back(want[i].w);
    }
    expect_close(w, expected, t * 16 * unit_roundoff(DType::f32), "w");
    for (double x : to_doubles(g)) ASSERT_EQ(x, 0);
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(compute.tensor().as<bf16>()[i].bits, bf16(w.tensor().as<float>()[i]).bits);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AdamWSizes, ::testing::Values(1, 31, 32, 33, 257, 70000));

struct Model {
  Buffer w = random_tensor(DType::f32, {100000}, 1), g = random_tensor(DType::f32, {100000}, 2);
  AdamW optimizer{kConfig,
                  {{"matrix", w.tensor().rows(0, 70000), {}, g.tensor().rows(0, 70000), true},
                   {"bias", w.tensor().rows(70000, 100000), {}, g.tensor().rows(70000, 100000), false}}};
};

TEST(AdamWModel, NormIsThatOfAllGradients) {
  Model model;
  Stream stream;
  double squares = 0;
  for (double x : to_doubles(model.g)) squares += x * x;
  EXPECT_NEAR(model.optimizer.grad_norm(stream), std::sqrt(squares), 1e-5 * std::sqrt(squares));
}

TEST(AdamWModel, DecaysOnlyWhatIsMarked) {
  Model model;
  Stream stream;
  assign(model.g, Doubles(100000, 0.0));
  const Doubles before = to_doubles(model.w);
  model.optimizer.step(0.01, 1, stream);
  const Doubles after = to_doubles(model.w);
  for (size_t i = 0; i < before.size(); ++i)
    ASSERT_NEAR(after[i], i < 70000 ? before[i] * (1 - 0.01 * 0.1) : before[i], 1e-6) << i;
  EXPECT_EQ(model.optimizer.t(), 1);
}

TEST(AdamWModel, BitsDoNotDependOnThreads) {
  std::vector<Doubles> results;
  std::vector<double> norms;
  const int threads = num_threads();
  for (int n : {1, 2, 3}) {
    set_num_threads(n);
    Model model;
    Stream stream;
    norms.push_back(model.optimizer.grad_norm(stream));
    model.optimizer.step(0.01, 0.3f, stream);
    results.push_back(to_doubles(model.w));
  }
  set_num_threads(threads);
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(norms[0], norms[2]);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace ingot::testing
