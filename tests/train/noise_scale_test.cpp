// The gradient noise scale: its estimates on gradients whose scale is known, and the norms that a trainer
// gives it.
#include "ingot/train/noise_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/train/small_training.h"

namespace ingot {
namespace {

// Gradients of tokens are G plus normal noise of 0.5 in each of 20 dims: |G|^2 is 3.2, tr(Sigma) 5.
struct SyntheticGradients {
  static constexpr int kDims = 20;
  std::mt19937_64 random{7};
  std::normal_distribution<double> normal{0, 0.5};

  // Squared norms of the mean of the first b tokens, and of all B.
  std::pair<double, double> draw(int b, int B) {
    double small = 0, big = 0;
    for (int d = 0; d < kDims; ++d) {
      double sum = 0, part = 0;
      for (int i = 0; i < B; ++i) {
        sum += 0.4 + normal(random);
        if (i + 1 == b) part = sum;
      }
      small += std::pow(part / b, 2);
      big += std::pow(sum / B, 2);
    }
    return {small, big};
  }
};

TEST(NoiseScale, BothEstimatesAreUnbiased) {
  SyntheticGradients gradients;
  constexpr int kDraws = 20000;
  for (const auto& [b, B] : {std::pair{1, 4}, {2, 8}, {3, 12}}) {
    double gradient = 0, noise = 0, gradient_squares = 0, noise_squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      const auto [small, big] = gradients.draw(b, B);
      const NoiseScale::Estimate one = NoiseScale::estimate(small, b, big, B);
      gradient += one.gradient / kDraws;
      noise += one.noise / kDraws;
      gradient_squares += one.gradient * one.gradient / kDraws;
      noise_squares += one.noise * one.noise / kDraws;
    }
    // Four standard errors of the mean.
    EXPECT_NEAR(gradient, 3.2, 4 * std::sqrt((gradient_squares - gradient * gradient) / kDraws)) << b;
    EXPECT_NEAR(noise, 5, 4 * std::sqrt((noise_squares - noise * noise) / kDraws)) << b;
  }
}

TEST(NoiseScale, AveragesComeCloseToTheQuotient) {
  SyntheticGradients gradients;
  NoiseScale scale;
  EXPECT_FALSE(scale.tokens());
  double mean = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto [small, big] = gradients.draw(2, 16);
    scale.add(small, 2, big, 16);
    mean += scale.tokens().value_or(0) / 4000;
  }
  EXPECT_NEAR(mean, 5 / 3.2, 0.1);
  NoiseScale negative;
  negative.add(1, 2, 2, 16);
  EXPECT_FALSE(negative.tokens()) << "a larger step cannot have the larger norm on average";
}

// The norm that a step reports is that of its first micro-batch alone, as a mean over its tokens.
TEST(NoiseScale, TheTrainerGivesTheNormOfItsFirstMicroBatch) {
  const RunConfig config =
      small_config({"train.grad_accum=4", "train.batch_size=2", "train.noise_scale=true"});
  SmallTraining four(config), one(small_config({"train.grad_accum=1", "train.batch_size=2"}));
  const StepResult step = gradients(four.trainer, four.loader, 4);
  const StepResult first = gradients(one.trainer, one.loader, 1);
  EXPECT_NEAR(step.micro_squares, first.grad_norm * first.grad_norm, 1e-5 * step.micro_squares);
  EXPECT_LT(step.grad_norm * step.grad_norm, step.micro_squares);
  EXPECT_EQ(first.micro_squares, 0);
}

TEST(NoiseScale, StepsOfOneMicroBatchAreRefused) {
  try {
    small_config({"train.noise_scale=true"});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "--set: train.noise_scale = true compares one micro-batch with a step, so each rank needs 2 or more; "
        "raise train.grad_accum");
  }
}

}  // namespace
}  // namespace ingot
