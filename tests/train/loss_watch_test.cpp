// Tests the watch over the trained loss: what ends a run, what does not, and that it also checks the blocks.
#include "ingot/train/loss_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ingot/core/file.h"
#include "tests/reference/error_of.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

RawLoss head_gap(double gap, int64_t tokens = 64) {
  return {.ce = 4, .objective = 4, .trained = 4 + gap, .tokens = tokens};
}

// Returns the number (from 1) of the first check that ends the run, or 0 if none does.
int first_alarm(const std::vector<std::string>& assignments, const std::vector<RawLoss>& checks) {
  LossWatch watch(small_config(assignments));
  for (size_t i = 0; i < checks.size(); ++i) try {
      watch.check(checks[i], 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kNumerics);
      return static_cast<int>(i) + 1;
    }
  return 0;
}

const std::vector<std::string> kInBf16 = {"precision.compute=bf16"};

TEST(LossWatch, OneCheckFarOffEndsTheRun) {
  EXPECT_EQ(first_alarm(kInBf16, {head_gap(0), head_gap(0.39), head_gap(-0.41)}), 3);
}

TEST(LossWatch, ThreeChecksBeyondRoundingToOneSideEndTheRun) {
  const RawLoss bias = head_gap(-0.05);  // the limit is 2^-7 of 4 nats = 0.031
  EXPECT_EQ(first_alarm(kInBf16, {head_gap(0), bias, bias, bias}), 4);
  EXPECT_EQ(first_alarm(kInBf16, {bias, bias, head_gap(-0.02), bias, bias}), 0);
  EXPECT_EQ(first_alarm(kInBf16, {bias, bias, head_gap(0.05), bias, bias, head_gap(0.05)}), 0);
}

TEST(LossWatch, StepsWithoutACheckChangeNothing) {
  const RawLoss bias = head_gap(0.05);
  EXPECT_EQ(first_alarm(kInBf16, {bias, {}, bias, {}, bias}), 5);
}

// The limits are those of the table in docs/numerics.md.
TEST(LossWatch, TheLimitDependsOnTheFormats) {
  const std::string page = read_file(INGOT_SOURCE_DIR "/docs/numerics.md");
  for (const char* row : {"| f32 | 1e-4 |", "| f16, tf32 | 2^-10 |", "| bf16 | 2^-7 |", "| FP8 | 2^-5 |"})
    EXPECT_THAT(page, ::testing::HasSubstr(row));
  constexpr double kF32 = 1e-4, kF16 = 0x1p-10, kBf16 = 0x1p-7, kFp8 = 0x1p-5;
  const auto expect_limits = [](std::vector<std::string> assignments, double head, double forward) {
    const LossBiasLimits limits = loss_bias_limits(small_config(assignments));
    EXPECT_EQ(limits.head, head) << ::testing::PrintToString(assignments);
    EXPECT_EQ(limits.forward, forward) << ::testing::PrintToString(assignments);
  };
  expect_limits({}, kF32, kF32);
  expect_limits({"precision.compute=f16"}, kF16, kF16);
  expect_limits(kInBf16, kBf16, kBf16);
  expect_limits({"head.precision=bf16"}, kBf16, kBf16);
  expect_limits({"precision.compute=bf16", "head.precision=f32"}, kF32, kBf16);
  expect_limits({"precision.compute=bf16", "head.precision=fp8"}, kFp8, kFp8);
  expect_limits({"precision.compute=bf16", "precision.fp8=tensorwise"}, kBf16, kFp8);
  expect_limits({"head.raw_ce_bias_limit=0.5"}, 0.5, 0.5);
}

TEST(LossWatch, TheLimitIsWiderForFewerTokens) {
  EXPECT_EQ(first_alarm(kInBf16, std::vector<RawLoss>(9, head_gap(0.05, 16))), 0);
  EXPECT_EQ(first_alarm(kInBf16, std::vector<RawLoss>(9, head_gap(0.07, 16))), 3);
}

TEST(LossWatch, AForwardPassThatIsOffEndsTheRunToo) {
  RawLoss off = head_gap(0);
  off.forward_objective = 4;
  off.forward_trained = 4.05;
  off.forward_tokens = 64;
  EXPECT_EQ(first_alarm(kInBf16, {off, off, off}), 3);
}

// The head itself is right, but its input comes from blocks whose weights differ from the masters.
TEST(LossWatch, BlocksThatReadOtherWeightsThanTheMastersAreFound) {
  const auto run = [](bool is_broken) {
    SmallTraining training(small_config({"precision.compute=bf16", "head.raw_ce_every=1"}));
    training.steps(30);
    const auto& specs = training.trainer.layout().model->params().specs();
    for (int step = 0; step < 6; ++step) {
      for (size_t p = 0; is_broken && p < specs.size(); ++p) {
        if (specs[p].role != ParamRole::kMatrix) continue;
        const Tensor w = training.trainer.params().weight(static_cast<int>(p));
        for (int64_t i = 0; i < w.elements(); ++i) w.as<bf16>()[i] = bf16(0.0f);
      }
      training.steps(1);
    }
  };
  EXPECT_NO_THROW(run(false));
  EXPECT_THAT(error_of([&] { run(true); }, ErrorKind::kNumerics),
              ::testing::HasSubstr("by a forward pass in f32"));
}

}  // namespace
}  // namespace ingot
