// Seen: with a large train.grad_accum a step takes minutes, and a run that was asked to end finished its
// step before it saved. Wanted: the run ends between two micro-batches, in the state of the last finished
// step, and the resumed run computes the same numbers as an undisturbed one.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/train/small_training.h"

namespace ingot {
namespace {

TEST(AbandonedStep, LeavesNoTraceInTheResumedRun) {
  for (const char* compute : {"precision.compute=f32", "precision.compute=bf16"}) {
    const RunConfig config =
        small_config({compute, "train.grad_accum=4", "model.dropout=0.1", "optimizer.ema=0.9"});
    SmallTraining undisturbed(config), interrupted(config);
    undisturbed.steps(2);
    interrupted.steps(2);
    const int64_t position = interrupted.loader.position();
    const std::atomic<bool> is_stop_requested = true;
    EXPECT_TRUE(
        gradients(interrupted.trainer, interrupted.loader, 4, {}, &is_stop_requested).step.is_abandoned);
    EXPECT_EQ(interrupted.trainer.state().steps_done, 2);
    EXPECT_EQ(interrupted.loader.position(), position);
    const StepResult want = undisturbed.steps(3), got = interrupted.steps(3);
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.grad_norm, want.grad_norm);
  }
}

TEST(AbandonedStep, IsCompletedWhereItHasOneMicroBatch) {
  SmallTraining training(small_config({"train.grad_accum=1"}));
  const std::atomic<bool> is_stop_requested = true;
  EXPECT_FALSE(gradients(training.trainer, training.loader, 1, {}, &is_stop_requested).step.is_abandoned);
}

}  // namespace
}  // namespace ingot
