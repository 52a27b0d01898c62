// Tests training in f16: the loss scale finds its value, an overflow changes nothing but the scale, and a
// run with overflows resumes from a checkpoint bit by bit.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "ingot/formats/metrics_log.h"
#include "tests/reference/error_of.h"
#include "tests/run/training_fixture.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

std::vector<std::string> in_f16(std::vector<std::string> assignments) {
  assignments.insert(assignments.begin(), {"precision.compute=f16", "train.grad_accum=2"});
  return assignments;
}

RunConfig f16_config(const std::vector<std::string>& assignments) {
  return small_config(in_f16(assignments));
}

TEST(LossScaleTraining, ReachesTheLossOfF32) {
  const double want = SmallTraining(small_config({"train.grad_accum=2"})).steps(40).loss;
  EXPECT_LT(want, 0.8 * std::log(61.0));
  SmallTraining run(f16_config({}));
  const StepResult last = run.steps(40);
  EXPECT_EQ(last.step.scaler.scale, 65536);
  // Each of the 40 steps rounds by up to 2^-11, in either direction.
  EXPECT_NEAR(last.loss, want, 8 * 0x1p-11 * want);
}

TEST(LossScaleTraining, AnOverflowChangesOnlyTheScale) {
  SmallTraining run(
      f16_config({"precision.loss_scale_init=1073741824", "optimizer.ema=0.9", "optimizer.kind=adamw"}));
  const auto weights = [&] {
    std::vector<float> all;
    for (int u = 0; u < run.trainer.params().list().units(); ++u) {
      const Tensor& w = run.trainer.params().buffers(u).master;
      all.insert(all.end(), w.as<float>(), w.as<float>() + w.elements());
    }
    return all;
  };
  const auto states = [&] {
    std::string all;
    for (const Optimizer::State& s : run.trainer.state().optimizer.states())
      all.append(static_cast<const char*>(s.tensor.data), s.tensor.bytes());
    return all;
  };
  const std::vector<float> weights_before = weights();
  const std::string states_before = states();
  int overflows = 0;
  StepResult result = run.steps(1);
  for (; result.lowered_scale; result = run.steps(1)) {
    ++overflows;
    EXPECT_TRUE(weights() == weights_before);
    EXPECT_TRUE(states() == states_before);
    EXPECT_EQ(run.trainer.state().optimizer.t(), 0);
    EXPECT_EQ(run.trainer.state().steps_done, 0);
    EXPECT_TRUE(std::isfinite(result.loss));
    EXPECT_EQ(*result.lowered_scale, result.step.scaler.scale / 2);
    ASSERT_LT(overflows, 30);
  }
  EXPECT_GT(overflows, 2);
  EXPECT_EQ(result.step.scaler.scale, std::ldexp(1.0, 30 - overflows));
  EXPECT_EQ(run.trainer.state().optimizer.t(), 1);
  EXPECT_TRUE(std::isfinite(result.grad_norm));
  EXPECT_LT(run.steps(40).loss, 0.8 * std::log(61.0));
}

// The trainer divides the gradient norm and the update by the scale, with and without clipping.
TEST(LossScaleTraining, TheUpdateDoesNotDependOnTheScale) {
  for (const char* clip : {"optimizer.grad_clip=0", "optimizer.grad_clip=0.5"}) {
    SmallTraining low(f16_config({"precision.loss_scale=1024", clip})),
        high(f16_config({"precision.loss_scale=65536", clip}));
    for (int i = 0; i < 10; ++i) {
      const StepResult a = low.steps(1), b = high.steps(1);
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 4 * 0x1p-11 * b.grad_norm);
      EXPECT_NEAR(a.loss, b.loss, 4 * 0x1p-11 * b.loss);
    }
  }
}

// f16 rounds gradients below 2^-24 to zero unless they are scaled.
TEST(LossScaleTraining, WithoutAScaleSmallGradientsVanish) {
  const auto zeros = [](const char* scale) {
    SmallTraining run(f16_config({std::string("precision.loss_scale=") + scale, "train.batch_size=64"}));
    gradients(run.trainer, run.loader, 2);
    int64_t count = 0;
    for (int u = 0; u < run.trainer.params().list().units(); ++u) {
      const Tensor& g = run.trainer.params().buffers(u).grad;
      count += std::count(g.as<float>(), g.as<float>() + g.elements(), 0.0f);
    }
    return count;
  };
  EXPECT_GT(zeros("0.001"), zeros("65536") + 1000);
}

TEST(LossScaleTraining, AScaleThatCannotFollowIsAnError) {
  for (const char* scale : {"precision.loss_scale=1e30", "precision.loss_scale_min=1e30"}) {
    SmallTraining run(f16_config({"precision.loss_scale_init=1e30", scale}));
    EXPECT_THAT(error_of([&] { run.steps(1); }, ErrorKind::kNumerics),
                ::testing::HasSubstr("not finite in micro-batch 0"));
  }
}

// Delayed scaling clamps an infinite gradient to the largest FP8 value, but the loss scale still learns
// of the overflow.
TEST(LossScaleTraining, Fp8DoesNotHideOverflows) {
  for (const char* recipe : {"tensorwise", "rowwise", "rowwise_gw_hp", "delayed"}) {
    SmallTraining run(
        f16_config({std::string("precision.fp8=") + recipe, "precision.loss_scale_interval=1"}));
    int overflows = 0;
    for (int i = 0; i < 40; ++i) {
      const StepResult result = run.steps(1);
      overflows += result.lowered_scale.has_value();
      if (!result.lowered_scale) {
        EXPECT_TRUE(std::isfinite(result.fp8.amax));
      }
    }
    EXPECT_GT(overflows, 3) << recipe << ": doubling after every good step";
    EXPECT_LT(run.steps(10).loss, std::log(61.0)) << recipe;
  }
}

TEST(LossScaleTraining, ConfigErrorsNameTheKey) {
  EXPECT_THAT(refusal({"precision.loss_scale=1024"}),
              ::testing::HasSubstr("precision.loss_scale = 1024 is for precision.compute = f16; f32"));
  EXPECT_THAT(refusal(in_f16({"precision.loss_scale=-1"})),
              ::testing::HasSubstr("precision.loss_scale must be above 0"));
  EXPECT_THAT(refusal(in_f16({"precision.loss_scale=often"})),
              ::testing::HasSubstr("precision.loss_scale must be a number"));
  EXPECT_THAT(refusal(in_f16({"precision.master=bf16_tail"})), ::testing::HasSubstr("precision.master"));
  EXPECT_EQ(refusal(in_f16({"precision.loss_scale=dynamic"})), "no error");
  EXPECT_FALSE(small_config(in_f16({"precision.loss_scale=dynamic"})).precision.loss_scale.constant);
}

using LossScaleRun = TrainingTest;

// The scale doubles after every third step, so it overflows repeatedly.
TEST_F(LossScaleRun, OverflowsAreLoggedAndGoThroughACheckpoint) {
  RunConfig c = config(DType::f16);
  c.precision.loss_scale = {.init = 0x1p24, .growth_interval = 3, .hysteresis = 2};
  c.guard.max_skips = 0;  // an overflow does not count as a skip
  const TrainOutcome want = train(c, folder / "whole");
  EXPECT_EQ(want.steps, 60);
  double lowest = INFINITY;
  for (const MetricsRow& row : read_metrics(folder / "whole" / "metrics.jsonl"))
    lowest = std::min(lowest, row.number("loss_scale").value_or(lowest));
  int overflows = 0;
  const std::string log = read_file(folder / "whole" / "metrics.jsonl");
  for (size_t at = 0; (at = log.find("\"event\":\"overflow\"", at)) != std::string::npos; ++at) ++overflows;
  EXPECT_GT(overflows, 5);
  EXPECT_LT(lowest, 0x1p24);
  EXPECT_THAT(said, ::testing::HasSubstr("the gradients overflow f16 at loss scale 16777216"));
  EXPECT_THAT(said, ::testing::HasSubstr("batch skipped"));

  c.train.stop_at = 17;
  train(c, folder / "parts");
  c.train.stop_at = 0;
  const TrainOutcome got = train(c, folder / "parts", true);
  expect_equal_files(want.checkpoint, got.checkpoint);
}

// A schedule counts updates and not skipped steps, so the learning rates equal those of a run
// without overflows.
TEST_F(LossScaleRun, TheScheduleCountsUpdates) {
  RunConfig c = config(DType::f16);
  c.train.steps = 10;
  const auto rates = [&](const char* name) {
    train(c, folder / name);
    std::vector<double> all;
    for (const MetricsRow& row : read_metrics(folder / name / "metrics.jsonl"))
      if (const auto lr = row.number("lr")) all.push_back(*lr);
    return all;
  };
  const std::vector<double> calm = rates("calm");
  c.precision.loss_scale.init = 0x1p34;
  EXPECT_EQ(rates("overflowing"), calm);
  EXPECT_THAT(said, ::testing::HasSubstr("overflow"));
}

}  // namespace
}  // namespace ingot
