// Tests training with FP8 linears: every recipe reaches the loss of f32 and counts the values that
// saturate, and evaluation does not use FP8.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/reference/error_of.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

constexpr const char* kRecipes[] = {"tensorwise", "rowwise", "rowwise_gw_hp", "delayed"};

RunConfig two_layers(std::vector<std::string> assignments) {
  assignments.insert(assignments.begin(), "model.layers=2");
  return small_config(assignments);
}

TEST(Fp8Training, EveryRecipeReachesTheSameLoss) {
  const double want = SmallTraining(two_layers({})).steps(40).loss;
  EXPECT_LT(want, 0.8 * std::log(61.0));
  for (const char* compute : {"f32", "bf16", "f16"})
    for (const std::string recipe : kRecipes)
      for (const char* head : {"compute", "fp8"}) {
        if (compute == std::string("f32") && head == std::string("fp8")) continue;
        SmallTraining run(two_layers({"precision.fp8=" + recipe, std::string("precision.compute=") + compute,
                                      std::string("head.precision=") + head}));
        const StepResult last = run.steps(40);
        EXPECT_NEAR(last.loss, want, (head == std::string("fp8") ? 0.015 : 0.006) * want)
            << compute << " " << recipe << " " << head;
        EXPECT_GT(last.fp8.elements, 0);
        EXPECT_LT(last.fp8.saturated, last.fp8.elements / 100);
      }
}

TEST(Fp8Training, EvaluationIsNotInFp8) {
  for (const char* recipe : kRecipes) {
    SmallTraining fp8(two_layers({"precision.compute=bf16", std::string("precision.fp8=") + recipe}));
    SmallTraining plain(two_layers({"precision.compute=bf16"}));
    const double before = fp8.trainer.evaluate(fp8.source, 0).loss;
    EXPECT_EQ(before, plain.trainer.evaluate(plain.source, 0).loss) << "the same initial weights";
    EXPECT_NE(fp8.steps(1).loss, plain.steps(1).loss);
  }
}

TEST(Fp8Training, TheFilterChoosesLinears) {
  SmallTraining run(two_layers({"precision.fp8=rowwise", "precision.fp8_layers=[\"blocks.1.mlp.*\"]"}));
  run.steps(1);
  std::vector<std::string> names;
  for (const Fp8State::Entry& entry : run.trainer.state().fp8.entries()) {
    names.push_back(entry.name);
    EXPECT_GT(entry.stats.elements, 0) << entry.name;
    EXPECT_GT(entry.stats.amax, 0) << entry.name;
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("blocks.1.mlp.up.x", "blocks.1.mlp.up.w", "blocks.1.mlp.up.dy",
                                     "blocks.1.mlp.down.x", "blocks.1.mlp.down.w", "blocks.1.mlp.down.dy"));
  EXPECT_THAT(
      usage_error([&] {
        SmallTraining none(two_layers({"precision.fp8=rowwise", "precision.fp8_layers=[\"block.*\"]"}));
      }),
      ::testing::HasSubstr("precision.fp8_layers"));
}

}  // namespace
}  // namespace ingot
