// Tests that a run on CUDA devices is refused with a message that names the unsupported key or format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/config/config_toml.h"
#include "ingot/config/device_support.h"
#include "ingot/optim/rules/all_rules.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

std::string device_refusal(std::vector<std::string> overrides, const std::string& toml = "") {
  overrides.insert(overrides.begin(), {"train.device=cuda", "model.context=64", "model.width=64",
                                       "model.heads=4", "model.ffn=128", "train.grad_accum=4"});
  return usage_error([&] {
    ConfigBuilder builder;
    builder.add_toml(toml, "run.toml");
    for (const std::string& assignment : overrides) builder.add_override(assignment);
    builder.build();
  });
}

TEST(DeviceSupport, EveryLayoutIsAccepted) {
  EXPECT_EQ(device_refusal({"parallel.tp=4"}), "no error");
  EXPECT_EQ(device_refusal({"parallel.tp=2", "parallel.dp=2"}), "no error");
  EXPECT_EQ(device_refusal({"parallel.tp=2", "parallel.fsdp=2", "parallel.dp=2"}), "no error");
}

TEST(DeviceSupport, EveryRuleIsAcceptedInEveryLayout) {
  const std::string muon = "[[optimizer.group]]\nroles = [\"matrix\"]\nkind = \"muon\"\n";
  for (const char* axis : {"parallel.dp=2", "parallel.fsdp=2", "parallel.tp=2", "parallel.pp=2"}) {
    EXPECT_EQ(device_refusal({axis}, muon), "no error") << axis;
    for (const RuleEntry& rule : rules()) {
      if (rule.is_matrix_rule) continue;  // it takes no vectors
      EXPECT_EQ(device_refusal({axis, fmt::format("optimizer.kind={}", rule.name)}), "no error") << axis;
    }
  }
}

// The dims of every shard of an 8-bit product are multiples of 16.
TEST(DeviceSupport, ShardsOfFp8LinearsAreMultiplesOfTheGranule) {
  const std::string fp8 = "precision.fp8=tensorwise", bf16 = "precision.compute=bf16";
  EXPECT_EQ(device_refusal({fp8, bf16, "parallel.tp=4"}), "no error");
  EXPECT_THAT(
      device_refusal({fp8, bf16, "parallel.tp=4", "model.ffn=96"}),
      HasSubstr("precision.fp8_layers must be linears whose shards on parallel.tp = 4 ranks are "
                "multiples of 16 with train.device = \"cuda\", got blocks.0.mlp.down (64 x 24 on a rank)"));
  EXPECT_EQ(device_refusal({fp8, bf16, "parallel.tp=4", "model.ffn=96", "precision.fp8_layers=*attention*"}),
            "no error");
}

TEST(DeviceSupport, TheFp8HeadNeedsWholeGranulesOnEveryRank) {
  const std::string head = "head.precision=fp8", bf16 = "precision.compute=bf16";
  EXPECT_THAT(device_refusal({head, bf16, "parallel.tp=4", "model.vocab_multiple=32"}),
              HasSubstr("model.vocab_multiple must be a multiple of 64 for head.precision = \"fp8\" and "
                        "parallel.tp = 4 with train.device"));
  EXPECT_EQ(device_refusal({head, bf16, "parallel.tp=4", "model.vocab_multiple=64"}), "no error");
}

TEST(DeviceSupport, AFormatThatTheDeviceLacksIsNamed) {
  RunConfig config;
  const auto lacks = [&](int compute_capability) {
    return lacked_format(config, "the device", compute_capability);
  };
  EXPECT_EQ(lacks(80), "");
  config.head.precision = HeadPrecision::kFp8;
  EXPECT_THAT(lacks(86), HasSubstr("head.precision = \"fp8\": the device has compute capability 8.6, and "
                                   "products of FP8 need 8.9; set head.precision = \"bf16\""));
  EXPECT_EQ(lacks(89), "");
  config.precision.fp8.recipe = Fp8Recipe::kDelayed;
  EXPECT_THAT(lacks(80), HasSubstr("precision.fp8: the device has compute capability 8.0"));
  EXPECT_EQ(lacks(89), "");
  for (const Fp8Recipe recipe : {Fp8Recipe::kRowwise, Fp8Recipe::kRowwiseGwHp}) {
    config.precision.fp8.recipe = recipe;
    EXPECT_THAT(lacks(89),
                HasSubstr("FP8 with a scale per row need 9.0; set precision.fp8 = \"tensorwise\""));
    EXPECT_EQ(lacks(90), "");
    EXPECT_EQ(lacks(120), "");
  }
  EXPECT_EQ(fp8_support(86), "no FP8");
  EXPECT_EQ(fp8_support(89), "FP8 with one scale per tensor");
  EXPECT_EQ(fp8_support(90), "FP8");
}

}  // namespace
}  // namespace ingot
