#include "ingot/config/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ingot/core/error.h"
#include "ingot/optim/rules/rule_list.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

TEST(Presets, AreValidAndDescribed) {
  EXPECT_GE(presets().size(), 6u);
  for (const Preset& p : presets()) {
    EXPECT_EQ(preset(std::string(p.name)).preset, p.name);
    EXPECT_FALSE(preset_summary(p).empty()) << p.name;
  }
  EXPECT_FALSE(find_preset("no-such"));
}

// The published size is 124 million weights, here with the vocabulary padded to 50304 rows.
TEST(Presets, Gpt2HasThePublishedSize) {
  const ModelConfig model = preset("gpt2-124m").model.resolved();
  EXPECT_EQ(model.parameters(), 124'439'808);
  EXPECT_EQ(model.vocab_padded(), 50304);
  const TrainConfig train = preset("gpt2-124m").train;
  EXPECT_EQ(train.batch_size * train.grad_accum * model.context, 524'288);
}

// nanoGPT prints 0.80M for this model with 65 characters; that figure excludes the position table.
TEST(Presets, ShakespeareEqualsNanoGpt) {
  RunConfig config = preset("shakespeare-char-cpu");
  config.model.vocab = 65;
  const ModelConfig model = config.model.resolved();
  EXPECT_EQ(model.vocab_padded(), 65);
  EXPECT_NEAR(static_cast<double>(model.parameters() - model.context * model.width), 0.80e6, 0.005e6);
  EXPECT_EQ(config.train.steps, 2000);
  EXPECT_EQ(config.train.batch_size, 12);
  EXPECT_EQ(config.optimizer.lr * config.schedule.floor, 1e-4);
  EXPECT_EQ(config.optimizer.rule.options.get(&AdamW::Options::beta2), 0.99);
}

TEST(Presets, MuonUpdatesMatricesOnly) {
  RunConfig config = preset("shakespeare-char-muon");
  config.model.vocab = 65;
  const Trainer trainer(config, parallelize(config));
  const auto& states = trainer.state().optimizer.states();
  const auto count = [&](std::string_view prefix) {
    return std::count_if(states.begin(), states.end(),
                         [&](const Optimizer::State& s) { return s.name.starts_with(prefix); });
  };
  EXPECT_EQ(count("momentum.blocks."), 4 * 4);  // qkv, proj, up, down
  EXPECT_EQ(count("m."), 1 + 1 + 4 * 2 + 1);    // token and position table, norms
  EXPECT_EQ(count("m."), count("v."));
}

// The model tells the optimizer which rows of a fused matrix belong to which matrix. NorMuon keeps one
// number per row of a square or tall matrix and per column of a wide one, so the size of its state shows
// the split.
TEST(Presets, FusedMatricesReachMuonPartByPart) {
  RunConfig config;
  config.model = {.layers = 1, .heads = 4, .kv_heads = 2, .width = 32, .context = 8, .vocab = 64};
  config.model.mlp = Activation::kSwiglu;
  config.optimizer.groups = {{.roles = {ParamRole::kMatrix},
                              .rule = {.kind = "muon", .options = {{&Muon::Options::normuon, true}}}}};
  const Trainer trainer(config, parallelize(config));
  const int64_t ffn = trainer.layout().model->config().ffn;
  int found = 0;
  for (const Optimizer::State& state : trainer.state().optimizer.states()) {
    if (state.name == "second.blocks.0.attention.qkv.weight") {
      EXPECT_EQ(state.tensor.elements(), 32 + 32 + 32);  // the unsplit matrix would have 64
      ++found;
    }
  }
  EXPECT_EQ(found, 1);
  for (const ParamSpec& spec : trainer.layout().model->params().specs())
    if (spec.name == "blocks.0.mlp.up.weight") {
      EXPECT_EQ(spec.fused_rows, (std::vector<int64_t>{ffn, ffn}));
    }
}

TEST(Presets, DemoNeedsNoData) {
  const RunConfig config = preset("demo");
  EXPECT_THAT(config.data.train, ::testing::ElementsAre("builtin:bible"));
  EXPECT_THAT(preset("demo-headers").data.train, ::testing::ElementsAre("builtin:cpp-headers"));
  EXPECT_EQ(config.precision.compute, DType::bf16);
  EXPECT_EQ(config.train.max_time_s, 120);
  EXPECT_EQ(config.data.tokenizer_vocab, 4096);
  RunConfig sized = config;
  sized.model.vocab = config.data.tokenizer_vocab;
  EXPECT_LT(sized.model.resolved().parameters(), 3'000'000);  // two minutes are too short for more
}

TEST(Presets, Books10mHasAboutTenMillion) {
  RunConfig config = preset("books-10m");
  config.model.vocab = config.data.tokenizer_vocab;
  EXPECT_NEAR(static_cast<double>(config.model.resolved().parameters()), 10e6, 1e6);
}

}  // namespace
}  // namespace ingot
