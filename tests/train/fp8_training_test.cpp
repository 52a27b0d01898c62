// Training with FP8 linears: every recipe learns what f32 learns, counts what it loses, and ends where
// evaluation begins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ingot/train/config_toml.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

constexpr const char* kRecipes[] = {"tensorwise", "rowwise", "rowwise_gw_hp", "delayed"};

RunConfig config_with(const std::vector<std::string>& assignments) {
  ConfigBuilder builder;
  for (const char* always : {"model.layers=2", "model.heads=2", "model.width=32", "model.context=32",
                             "model.vocab=61", "data.tokenizer=char", "train.batch_size=8"})
    builder.add_override(always);
  for (const std::string& assignment : assignments) builder.add_override(assignment);
  return builder.build();
}

// A learnable stream: each token follows from the one before.
TokenSource chain() {
  std::vector<uint16_t> tokens(4000);
  for (size_t i = 1; i < tokens.size(); ++i)
    tokens[i] = static_cast<uint16_t>((tokens[i - 1] * 5 + 3 + (i % 17 == 0)) % 61);
  TokenSource source;
  source.add(tokens);
  return source;
}

struct Training {
  explicit Training(const RunConfig& config)
      : trainer(config),
        sampler(SampleOrder::kRandom, 1, source.tokens(), config.model.context),
        loader(source, sampler, {.shape = trainer.batch_shape(), .readers = 1, .reader = 0, .ring = 2}) {
    trainer.initialise();
  }
  StepResult steps(int n) {
    StepResult last;
    for (int i = 0; i < n; ++i) last = trainer.step(loader, {.lr = 3e-3});
    return last;
  }

  TokenSource source = chain();
  Trainer trainer;
  Sampler sampler;
  Loader loader;
};

TEST(Fp8Training, EveryRecipeLearnsTheSame) {
  const double want = Training(config_with({})).steps(40).loss;
  EXPECT_LT(want, 0.8 * std::log(61.0));
  for (const char* compute : {"f32", "bf16"})
    for (const std::string recipe : kRecipes)
      for (const char* head : {"compute", "fp8"}) {
        if (compute == std::string("f32") && head == std::string("fp8")) continue;
        Training run(config_with({"precision.fp8=" + recipe, std::string("precision.compute=") + compute,
                                  std::string("head.precision=") + head}));
        const StepResult last = run.steps(40);
        EXPECT_NEAR(last.loss, want, 0.1 * want) << compute << " " << recipe << " " << head;
        EXPECT_GT(last.fp8.elements, 0);
        EXPECT_LT(last.fp8.saturated, last.fp8.elements / 100);
      }
}

TEST(Fp8Training, EvaluationIsNotInFp8) {
  for (const char* recipe : kRecipes) {
    Training fp8(config_with({"precision.compute=bf16", std::string("precision.fp8=") + recipe}));
    Training bf16(config_with({"precision.compute=bf16"}));
    const double before = fp8.trainer.evaluate(fp8.source, 0).loss;
    EXPECT_EQ(before, bf16.trainer.evaluate(bf16.source, 0).loss) << "the same initial weights";
    EXPECT_NE(fp8.steps(1).loss, bf16.steps(1).loss);
  }
}

TEST(Fp8Training, TheFilterChoosesLinears) {
  Training run(config_with({"precision.fp8=rowwise", "precision.fp8_layers=[\"blocks.1.mlp.*\"]"}));
  run.steps(1);
  std::vector<std::string> names;
  for (const Fp8State::Entry& entry : run.trainer.fp8().entries()) {
    names.push_back(entry.name);
    EXPECT_GT(entry.stats.elements, 0) << entry.name;
    EXPECT_GT(entry.stats.amax, 0) << entry.name;
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("blocks.1.mlp.up.x", "blocks.1.mlp.up.w", "blocks.1.mlp.up.dy",
                                     "blocks.1.mlp.down.x", "blocks.1.mlp.down.w", "blocks.1.mlp.down.dy"));
  try {
    Training none(config_with({"precision.fp8=rowwise", "precision.fp8_layers=[\"block.*\"]"}));
    FAIL() << "no linear matches";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("precision.fp8_layers"));
  }
}

}  // namespace
}  // namespace ingot
