// Training with a window that grows (schedule.window).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/config/run_plan.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

// The losses of a few steps, and of an evaluation after them.
std::vector<double> course(const std::vector<std::string>& keys, std::vector<int64_t> windows) {
  SmallTraining run(small_config(keys));
  std::vector<double> losses;
  for (const int64_t window : windows) {
    losses.push_back(run.trainer.step(run.loader, {.lr = 3e-3, .window = window}).loss);
    spoil_old_gradients(run.trainer);
  }
  losses.push_back(run.trainer.evaluate(run.source, 64).loss);
  return losses;
}

// A step with a smaller window computes what a model with this window computes, and so does the evaluation
// after it.
TEST(WindowTraining, AStepHasTheWindowOfItsInputs) {
  for (const char* policy : {"activations.policy=none", "activations.policy=block"})
    for (const char* documents : {"data.document_mask=false", "data.document_mask=true"}) {
      const std::vector<std::string> keys{policy, documents, "model.layers=2", "head.raw_ce_every=1"};
      std::vector<std::string> small = keys, large = keys;
      small.push_back("model.window=4");
      large.push_back("model.window=24");
      const std::vector<double> want = course(small, {0, 0, 0});
      EXPECT_EQ(course(large, {4, 4, 4}), want);
      EXPECT_EQ(course(small, {24, 8, 4}), want) << "the model's own window is smaller";
      EXPECT_NE(course(large, {0, 0, 0}), want);
      EXPECT_EQ(course(large, {4, 0, 0})[0], want[0]);
      EXPECT_NE(course(large, {4, 0, 0})[1], want[1]);
      EXPECT_EQ(course(keys, {4, 4, 4}), course(keys, {0, 0, 0})) << "the model has no window";
    }
}

TEST(WindowTraining, BlocksWithoutAWindowKeepNone) {
  const std::vector<std::string> keys{"model.layers=2", "model.window=24", "model.full_layers=[0, 1]"};
  EXPECT_EQ(course(keys, {4, 4, 4}), course(keys, {0, 0, 0}));
}

TEST(WindowTraining, ThePlanGivesTheScheduledWindow) {
  const RunConfig config =
      small_config({"model.window=32", "train.steps=8", "schedule.window=[\"rest linear to 32\"]",
                    "schedule.window_multiple=8"});
  const RunPlan plan(config);
  std::vector<int64_t> windows;
  for (int64_t s = 0; s < 8; ++s) windows.push_back(plan.inputs(plan.position(s, 0, 0)).window);
  EXPECT_THAT(windows, ::testing::ElementsAre(8, 8, 8, 16, 16, 24, 24, 32));
  EXPECT_THAT(refusal({"schedule.window=[\"rest linear to 32\"]"}),
              ::testing::HasSubstr("needs model.window"));
}

}  // namespace
}  // namespace ingot
