// Compares the presets of published runs with the published values, which are written out here again, and
// each -tiny preset with the recipe that it scales down.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ingot/config/run_plan.h"
#include "ingot/optim/rules/rule_list.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

int64_t full_batch_tokens(const RunConfig& c) {
  return c.train.batch_size * c.train.grad_accum * c.model.context;
}

// A row of the table of training recipes, with the number of parameters that the model's name promises.
struct Published {
  const char* name;
  double peak_lr;
  int64_t warmup_tokens, warmup_steps;
  double batch_tokens, total_tokens;
  double parameters;
  int64_t layers, width, heads, kv_heads, context;
};

constexpr Published kPublished[] = {
    {"gpt3-175b", 0.6e-4, 375'000'000, 0, 3.2e6, 300e9, 175e9, 96, 12288, 96, 96, 2048},
    {"llama2-7b", 3.0e-4, 0, 2000, 4e6, 2e12, 6.74e9, 32, 4096, 32, 32, 4096},
    {"llama2-70b", 1.5e-4, 0, 2000, 4e6, 2e12, 69e9, 80, 8192, 64, 8, 4096},
    {"chinchilla-70b", 1.0e-4, 0, 1500, 1.5e6, 1.4e12, 65e9, 80, 8192, 64, 64, 2048},
    {"mistral-7b", 3.0e-4, 0, 1000, 4e6, 8e12, 7.24e9, 32, 4096, 32, 8, 8192},
};

// Expects what the recipes of the table have in common: (Adam)W with betas 0.9 and 0.95 and weight decay
// 0.1, a cosine schedule down to 10 % of the peak, and clipping at 1.
void expect_common_recipe(const RunConfig& c) {
  EXPECT_EQ(c.optimizer.rule.kind, "adamw");
  EXPECT_EQ(c.optimizer.rule.options.get(&AdamW::Options::beta1), 0.9);
  EXPECT_EQ(c.optimizer.rule.options.get(&AdamW::Options::beta2), 0.95);
  EXPECT_EQ(c.optimizer.rule.options.get(&AdamW::Options::weight_decay), 0.1);
  EXPECT_TRUE(c.optimizer.groups.empty());
  EXPECT_EQ(c.optimizer.grad_clip, 1.0);
  EXPECT_EQ(c.schedule.kind, ScheduleKind::kCosine);
  EXPECT_EQ(c.schedule.floor, 0.1);
}

TEST(Recipes, MatchThePublishedTable) {
  for (const Published& want : kPublished) {
    SCOPED_TRACE(want.name);
    const RunConfig c = preset(want.name);
    expect_common_recipe(c);
    EXPECT_EQ(c.optimizer.lr, want.peak_lr);
    EXPECT_EQ(c.schedule.warmup_tokens, want.warmup_tokens);
    EXPECT_EQ(c.schedule.warmup_steps, want.warmup_steps);
    EXPECT_EQ(static_cast<double>(c.train.max_tokens), want.total_tokens);
    // The batch sizes are published with two figures, and a number of whole sequences cannot always
    // match them.
    EXPECT_NEAR(static_cast<double>(full_batch_tokens(c)), want.batch_tokens, 0.05 * want.batch_tokens);
    const ModelConfig model = c.model.resolved();
    EXPECT_NEAR(static_cast<double>(model.parameters()), want.parameters, 0.01 * want.parameters);
    EXPECT_EQ(model.layers, want.layers);
    EXPECT_EQ(model.width, want.width);
    EXPECT_EQ(model.heads, want.heads);
    EXPECT_EQ(model.kv_heads, want.kv_heads);
    EXPECT_EQ(model.head_dim, 128);
    EXPECT_EQ(model.context, want.context);
  }
}

TEST(Recipes, EndAtATenthOfThePeak) {
  for (const Published& want : kPublished) {
    SCOPED_TRACE(want.name);
    const RunConfig c = preset(want.name);
    const RunPlan plan(c);
    const auto lr = [&](int64_t step) {
      return plan.lr(plan.position(step, plan.ramp().tokens_before(step), 0));
    };
    EXPECT_LT(lr(0), 0.02 * want.peak_lr);
    EXPECT_NEAR(lr(plan.steps()), 0.1 * want.peak_lr, 1e-12);
    EXPECT_GT(lr(plan.steps() / 10), 0.9 * want.peak_lr);
  }
}

// The values come from the hybrid-precision document and from record 19 of the speed run that it
// describes: Muon with 0.05 for the matrices, Adam with 0.6 for the embedding and 0.008 for the head, and
// 1395 steps of 8 x 65536 tokens.
TEST(Recipes, MatchTheHybridPrecisionRun) {
  for (const bool is_tiny : {false, true}) {
    const RunConfig c = preset(is_tiny ? "hybrid-124m-tiny" : "hybrid-124m");
    EXPECT_EQ(c.optimizer.rule.kind, "adam");
    EXPECT_EQ(c.optimizer.rule.options.get(&AdamW::Options::beta1), 0.8);
    EXPECT_EQ(c.optimizer.rule.options.get(&AdamW::Options::beta2), 0.95);
    EXPECT_EQ(c.optimizer.grad_clip, 0);
    ASSERT_EQ(c.optimizer.groups.size(), 3u);
    const GroupConfig &matrices = c.optimizer.groups[0], &embedding = c.optimizer.groups[1],
                      &head = c.optimizer.groups[2];
    EXPECT_EQ(matrices.rule.kind, "muon");
    EXPECT_EQ(matrices.rule.options.get(&AdamW::Options::weight_decay), 0);
    EXPECT_EQ(c.optimizer.lr, 0.05);
    EXPECT_EQ(embedding.lr, 0.6);
    EXPECT_EQ(head.lr, 0.008);
    EXPECT_EQ(c.model.cap.kind, CapKind::kSigmoid);
    EXPECT_EQ(c.model.cap.a, 30);
    EXPECT_EQ(c.model.cap.c, 7.5);
    EXPECT_EQ(c.head.precision, HeadDtype::kFp8);
    EXPECT_EQ(c.head.fp8_scaling, Fp8HeadScaling::kStatic);
    EXPECT_EQ(c.head.fp8_x_scale, 2);
    EXPECT_EQ(c.head.fp8_w_scale, 32);
    EXPECT_TRUE(c.model.has_qk_norm);
    EXPECT_EQ(c.model.mlp, MlpKind::kRelu2);
    EXPECT_EQ(c.model.projection_init, ProjectionInit::kZero);
    const RunPlan plan(c);
    const double n = static_cast<double>(plan.steps());
    for (int64_t it = 0; it < plan.steps(); it += 7) {
      const double t = 1 - static_cast<double>(it) / n, w = std::min(t / 0.4, 1.0);
      EXPECT_NEAR(plan.lr(plan.position(it, 0, 0)), 0.05 * (w + (1 - w) * 0.1), 1e-12) << it;
    }
    EXPECT_NEAR(plan.momentum(plan.position(0, 0, 0)), 0.85, 1e-12);
    EXPECT_NEAR(plan.momentum(plan.position(plan.steps() - 1, 0, 0)), 0.95, 1e-12);
  }
  const RunConfig c = preset("hybrid-124m");
  EXPECT_EQ(c.train.steps, 1395);
  EXPECT_EQ(full_batch_tokens(c), 8 * 65536);
  EXPECT_EQ(c.model.resolved().vocab_padded(), 50304);
  EXPECT_EQ(c.model.resolved().head_dim, 128);
  const RunPlan plan(c);
  EXPECT_NEAR(plan.momentum(plan.position(150, 0, 0)), 0.90, 1e-12);
  EXPECT_NEAR(plan.momentum(plan.position(300, 0, 0)), 0.95, 1e-12);
}

TEST(Recipes, MatchTheTrainingLogsOneBillionModel) {
  const RunConfig c = preset("llama-1b");
  EXPECT_EQ(c.model.layers, 16);
  EXPECT_EQ(c.model.vocab, 131072);
  EXPECT_EQ(c.train.batch_size, 64);
  EXPECT_EQ(c.model.context, 2048);
  EXPECT_EQ(c.optimizer.lr, 3e-4);
  EXPECT_EQ(c.activations.policy, RecomputePolicy::kBlock);
  EXPECT_EQ(c.sample.tokens, 50);
  EXPECT_EQ(c.sample.prompts.at(0), "The meaning of life is ");
  EXPECT_NEAR(static_cast<double>(c.model.resolved().parameters()), 1.1e9, 0.05e9);
  expect_common_recipe(c);
}

// The -tiny presets differ only in sizes, data and lengths, and AdamW's peak rate grows as the width shrinks.
TEST(Recipes, TinyFormsHaveTheSameRecipe) {
  std::vector<std::string> names = {"llama-1b"};
  for (const Published& published : kPublished) names.emplace_back(published.name);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const RunConfig big = preset(name), tiny = preset(name + "-tiny");
    expect_common_recipe(tiny);
    const double ratio = static_cast<double>(big.model.width) / static_cast<double>(tiny.model.width);
    EXPECT_NEAR(tiny.optimizer.lr, big.optimizer.lr * ratio, 1e-9);
    EXPECT_EQ(tiny.activations.policy, big.activations.policy);
    EXPECT_EQ(tiny.model.norm, big.model.norm);
    EXPECT_EQ(tiny.model.positions, big.model.positions);
    EXPECT_EQ(tiny.model.mlp, big.model.mlp);
    EXPECT_EQ(tiny.model.has_bias, big.model.has_bias);
    EXPECT_EQ(tiny.model.is_tied, big.model.is_tied);
    EXPECT_EQ(tiny.model.norm_eps, big.model.norm_eps);
    const auto is_grouped = [](const RunConfig& c) {
      return c.model.resolved().kv_heads < c.model.resolved().heads;
    };
    EXPECT_EQ(is_grouped(tiny), is_grouped(big));
    EXPECT_EQ(tiny.train.batch_ramp.empty(), big.train.batch_ramp.empty());
    EXPECT_EQ(tiny.schedule.warmup_tokens > 0, big.schedule.warmup_tokens > 0);
    EXPECT_EQ(tiny.precision.compute, big.precision.compute);
    ASSERT_EQ(tiny.data.train.size(), 1u);
    EXPECT_EQ(tiny.data.train[0], "builtin:cpp-headers");
    RunConfig sized = tiny;
    sized.model.vocab = tiny.data.tokenizer_vocab;
    EXPECT_LT(sized.model.resolved().parameters(), 10'000'000);
    EXPECT_LE(tiny.train.max_tokens, 2'000'000);
  }
}

}  // namespace
}  // namespace ingot
