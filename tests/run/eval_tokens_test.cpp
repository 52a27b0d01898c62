#include "ingot/run/eval/eval_tokens.h"

#include <gtest/gtest.h>

#include "ingot/config/config_toml.h"
#include "tests/config/built_config.h"

namespace ingot {
namespace {

// GPT-2 124M in batches of 4 x 256 tokens, for which kFreeEvalFlops (about a second) pay for 200 tokens.
EvalBudget auto_eval_budget(int64_t first_tokens, int64_t trained_tokens) {
  return {.first_tokens = first_tokens,
          .trained_tokens = trained_tokens,
          .flops_per_token = 7.5e8,
          .batch_tokens = 1024,
          .text_tokens = 1'000'000};
}

TEST(AutoEvalTokens, AreAnEighthOfTheTrainingTokensInWholeBatches) {
  EXPECT_EQ(auto_eval_tokens(auto_eval_budget(0, 400'000)), 48 * 1024);
  EXPECT_EQ(auto_eval_tokens(auto_eval_budget(0, 3 * 1024)), 1024) << "never less than a batch";
  EXPECT_EQ(auto_eval_tokens(auto_eval_budget(0, 0)), 1024);
}

TEST(AutoEvalTokens, StayTheSameAfterTheFirstEvaluation) {
  const int64_t first = auto_eval_tokens(auto_eval_budget(250 * 1024, 250 * 1024));
  EXPECT_EQ(first, 31 * 1024);
  for (const int64_t steps : {251, 500, 100'000})
    EXPECT_EQ(auto_eval_tokens(auto_eval_budget(250 * 1024, steps * 1024)), first) << steps;
  EXPECT_LT(auto_eval_tokens(auto_eval_budget(250 * 1024, 100 * 1024)), first)
      << "an earlier end takes fewer";
}

TEST(AutoEvalTokens, SeveralTextsShareThem) {
  EvalBudget several = auto_eval_budget(0, 400'000);
  several.texts = 3;
  EXPECT_EQ(auto_eval_tokens(several), 16 * 1024);
}

TEST(AutoEvalTokens, AreAllWhereAllAreCheap) {
  EXPECT_EQ(auto_eval_tokens(auto_eval_budget(0, 8'000'000)), 0);
  EXPECT_EQ(auto_eval_tokens(auto_eval_budget(0, 7'999'999)), 976 * 1024)
      << "the last batch would be one of 576 tokens";
  EvalBudget tiny = auto_eval_budget(0, 1024);
  tiny.flops_per_token = 1e5;  // kFreeEvalFlops now pay for 1.5M tokens
  EXPECT_EQ(auto_eval_tokens(tiny), 0);
  tiny.text_tokens = 2'000'000;
  EXPECT_EQ(auto_eval_tokens(tiny), 1'500'000 / 1024 * 1024);
}

// The forward pass of a token costs a third of its training step, so this tests the promise that
// evaluation takes at most a tenth of the time.
TEST(AutoEvalTokens, CostAtMostATenthOfTheTrainingSoFar) {
  for (const int64_t steps : {20, 100, 250, 999})
    EXPECT_LE(static_cast<double>(auto_eval_tokens(auto_eval_budget(0, steps * 1024))) / 3,
              0.1 * static_cast<double>(steps * 1024))
        << steps;
}

TEST(AutoEvalTokens, AreTheDefaultAndNumbersAreTakenLiterally) {
  const auto max_tokens = [](const std::string& assignment) {
    return built_config("tiny-gpt2", {"eval.max_tokens=" + assignment}).eval.max_tokens;
  };
  EXPECT_FALSE(RunConfig{}.eval.max_tokens);
  EXPECT_EQ(max_tokens("auto"), std::nullopt);
  EXPECT_EQ(max_tokens("0"), 0);
  EXPECT_EQ(max_tokens("1M"), 1'000'000);
  RunConfig config;
  EXPECT_NE(config_toml(config, ConfigDocs::kNone).find("max_tokens = \"auto\""), std::string::npos);
}

}  // namespace
}  // namespace ingot
