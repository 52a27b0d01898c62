// Compares the scaling rules with numbers worked out by hand from the formulas of their papers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/config/config_toml.h"
#include "tests/config/built_config.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

// Width 256, 8 layers, 64 sequences of 32 tokens, 1000 steps; heads of 16 channels.
RunConfig scaled(const std::vector<std::string>& assignments) {
  return built_config("",
                      {"model.width=256", "model.heads=16", "model.layers=8", "model.context=32",
                       "model.vocab=61", "model.tied=false", "data.tokenizer=char", "train.batch_size=64",
                       "train.steps=1000", "optimizer.lr=0.004", "optimizer.weight_decay=0.1"},
                      assignments);
}

std::string refusal(const std::vector<std::string>& assignments) {
  return error_of([&] { scaled(assignments); });
}

const GroupConfig* group_of(const RunConfig& config, ParamRole role) {
  for (const GroupConfig& group : config.optimizer.groups)
    if (std::ranges::count(group.roles, role) > 0 && group.match.empty()) return &group;
  return nullptr;
}

double decay_of(const GroupConfig& group) {
  const OptionValue* value = group.rule.options.find("weight_decay");
  return value ? std::get<double>(*value) : -1;
}

TEST(Scaling, MupGivesAdamTable3) {
  const RunConfig c = scaled({"scaling.base=width=64 head_dim=16"});
  // Width x 4: rates of hidden and output matrices x 1/4, of all others x 1.
  EXPECT_DOUBLE_EQ(c.optimizer.lr, 0.004);
  for (const ParamRole role : {ParamRole::kMatrix, ParamRole::kHead}) {
    ASSERT_NE(group_of(c, role), nullptr);
    EXPECT_DOUBLE_EQ(group_of(c, role)->lr_scale.value(), 0.25);
    EXPECT_DOUBLE_EQ(decay_of(*group_of(c, role)), 0.4);  // rate * decay is that of the base
  }
  EXPECT_EQ(group_of(c, ParamRole::kEmbedding), nullptr);
  EXPECT_EQ(group_of(c, ParamRole::kNorm), nullptr);
  // Variance of hidden matrices x 1/4, of the output x 1/16.
  EXPECT_DOUBLE_EQ(c.model.init_std, 0.02);
  EXPECT_DOUBLE_EQ(c.model.matrix_init_std, 0.01);
  EXPECT_DOUBLE_EQ(c.model.head_init_std, 0.005);
}

TEST(Scaling, MupGivesSgdTable3) {
  const RunConfig c =
      scaled({"scaling.base=width=64 head_dim=16", "optimizer.kind=momentum", "optimizer.weight_decay=0"});
  EXPECT_EQ(group_of(c, ParamRole::kMatrix), nullptr);
  EXPECT_DOUBLE_EQ(group_of(c, ParamRole::kEmbedding)->lr_scale.value(), 4);
  EXPECT_DOUBLE_EQ(group_of(c, ParamRole::kBias)->lr_scale.value(), 4);
  EXPECT_DOUBLE_EQ(group_of(c, ParamRole::kHead)->lr_scale.value(), 0.25);
}

TEST(Scaling, MuonKeepsItsRate) {
  ConfigBuilder builder;
  builder.add_toml(R"(
[model]
width = 256
heads = 16
vocab = 61
tied = false
[data]
tokenizer = "char"
[[optimizer.group]]
roles = ["matrix"]
kind = "muon"
lr = 0.02
[scaling]
base = "width=64 head_dim=16"
)",
                   "run.toml");
  const RunConfig c = builder.build();
  ASSERT_NE(group_of(c, ParamRole::kMatrix), nullptr);
  EXPECT_EQ(group_of(c, ParamRole::kMatrix)->rule.kind, "muon");
  EXPECT_DOUBLE_EQ(group_of(c, ParamRole::kMatrix)->lr.value(), 0.02);
  EXPECT_DOUBLE_EQ(group_of(c, ParamRole::kHead)->lr_scale.value(), 0.25);
}

TEST(Scaling, BatchRulesFollowTheSquareRootAndTheLine) {
  const std::string base = "scaling.base=batch=16";  // x 4
  EXPECT_DOUBLE_EQ(scaled({base, "scaling.batch_rule=sqrt"}).optimizer.lr, 0.008);
  EXPECT_DOUBLE_EQ(scaled({base, "scaling.batch_rule=linear", "optimizer.kind=sgd"}).optimizer.lr, 0.016);
}

TEST(Scaling, TimescaleKeepsRateTimesDecayTimesSteps) {
  // 1000 steps of 2048 tokens against 500 steps of 2048: decay x 1/2. With a batch 4 times the base's and the
  // same steps, the rate doubles and the decay halves.
  const RunConfig longer = scaled({"scaling.base=tokens=1024000", "scaling.tokens_rule=timescale"});
  EXPECT_DOUBLE_EQ(std::get<double>(*longer.optimizer.rule.options.find("weight_decay")), 0.05);
  const RunConfig wider = scaled(
      {"scaling.base=batch=16 tokens=512000", "scaling.tokens_rule=timescale", "scaling.batch_rule=sqrt"});
  EXPECT_DOUBLE_EQ(wider.optimizer.lr, 0.008);
  EXPECT_DOUBLE_EQ(std::get<double>(*wider.optimizer.rule.options.find("weight_decay")), 0.05);
}

TEST(Scaling, DepthScalesBlocksByTheRootAndProjectionsTwice) {
  const RunConfig c = scaled({"scaling.base=layers=2", "scaling.depth_rule=sqrt"});  // x 4: m = 1/2
  ASSERT_FALSE(c.optimizer.groups.empty());
  EXPECT_THAT(c.optimizer.groups[0].match, ::testing::Contains("blocks.*.attention.proj.*"));
  EXPECT_DOUBLE_EQ(c.optimizer.groups[0].lr_scale.value(), 0.25);
  EXPECT_DOUBLE_EQ(group_of(c, ParamRole::kMatrix)->lr_scale.value(), 0.5);
  EXPECT_EQ(group_of(c, ParamRole::kHead), nullptr);
}

TEST(Scaling, EqualSizesAndNoBaseChangeNoNumber) {
  const std::string off = config_toml(scaled({}), ConfigDocs::kNone);
  EXPECT_EQ(config_toml(scaled({"scaling.base=width=256 layers=8 batch=64", "scaling.depth_rule=sqrt",
                                "scaling.batch_rule=sqrt", "scaling.tokens_rule=timescale"}),
                        ConfigDocs::kNone),
            off);
}

TEST(Scaling, TheResolvedConfigurationReadsBackUnchanged) {
  const std::string text =
      config_toml(scaled({"scaling.base=width=64 head_dim=16 layers=2 batch=16", "scaling.depth_rule=sqrt",
                          "scaling.batch_rule=sqrt", "scaling.tokens_rule=timescale"}),
                  ConfigDocs::kNone);
  ConfigBuilder again;
  again.add_toml(text, "config.toml");
  EXPECT_EQ(config_toml(again.build(), ConfigDocs::kNone), text);
}

TEST(Scaling, RefusesWhatNoRuleAnswers) {
  const std::string wider = "scaling.base=width=64 head_dim=16";
  EXPECT_THAT(refusal({wider, "model.tied=true"}), HasSubstr("model.tied = false"));
  EXPECT_THAT(refusal({wider, "model.heads=4"}), HasSubstr("model.heads = 16"));
  EXPECT_THAT(refusal({wider, "optimizer.kind=adafactor"}), HasSubstr("use adamw"));
  EXPECT_THAT(refusal({wider, "scaling.batch_rule=linear"}), HasSubstr("scaling.batch_rule = sqrt"));
  EXPECT_THAT(refusal({"scaling.base=widht=64"}), HasSubstr("did you mean width?"));
  EXPECT_THAT(refusal({"scaling.base=width=many"}), HasSubstr("\"width=many\""));
  EXPECT_THAT(refusal({"scaling.base=dmeo"}), HasSubstr("did you mean demo?"));
}

}  // namespace
}  // namespace ingot
