// What a run on CUDA devices is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/optim/rules/all_rules.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

std::string device_refusal(std::vector<std::string> overrides, const std::string& toml = "") {
  overrides.insert(overrides.begin(), {"train.device=cuda", "model.context=64", "model.width=64",
                                       "model.heads=4", "model.ffn=128", "train.grad_accum=4"});
  try {
    ConfigBuilder builder;
    builder.add_toml(toml, "run.toml");
    for (const std::string& assignment : overrides) builder.add_override(assignment);
    builder.build();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "accepted";
}

TEST(DeviceSupport, EveryLayoutIsAccepted) {
  EXPECT_EQ(device_refusal({"parallel.tp=4"}), "accepted");
  EXPECT_EQ(device_refusal({"parallel.tp=2", "parallel.dp=2"}), "accepted");
  EXPECT_EQ(device_refusal({"parallel.tp=2", "parallel.fsdp=2", "parallel.dp=2"}), "accepted");
}

TEST(DeviceSupport, EveryRuleIsAcceptedInEveryLayout) {
  const std::string muon = "[[optimizer.group]]\nroles = [\"matrix\"]\nkind = \"muon\"\n";
  for (const char* axis : {"parallel.dp=2", "parallel.fsdp=2", "parallel.tp=2", "parallel.pp=2"}) {
    EXPECT_EQ(device_refusal({axis}, muon), "accepted") << axis;
    for (const RuleEntry& rule : rules()) {
      if (rule.is_matrix_rule) continue;  // it takes no vectors
      EXPECT_EQ(device_refusal({axis, fmt::format("optimizer.kind={}", rule.name)}), "accepted") << axis;
    }
  }
}

// The dims of every shard of an 8-bit product are multiples of 16.
TEST(DeviceSupport, ShardsOfFp8LinearsAreMultiplesOfTheGranule) {
  const std::string fp8 = "precision.fp8=tensorwise", bf16 = "precision.compute=bf16";
  EXPECT_EQ(device_refusal({fp8, bf16, "parallel.tp=4"}), "accepted");
  EXPECT_THAT(device_refusal({fp8, bf16, "parallel.tp=4", "model.ffn=96"}),
              HasSubstr("precision.fp8_layers must be linears whose shards on parallel.tp = 4 ranks are "
                        "multiples of 16 with train.device = \"cuda\", got blocks.0.mlp.down (96 / 4)"));
  EXPECT_EQ(device_refusal({fp8, bf16, "parallel.tp=4", "model.ffn=96", "precision.fp8_layers=*attention*"}),
            "accepted");
}

TEST(DeviceSupport, TheFp8HeadNeedsWholeGranulesOnEveryRank) {
  const std::string head = "head.precision=fp8", bf16 = "precision.compute=bf16";
  EXPECT_THAT(device_refusal({head, bf16, "parallel.tp=4", "model.vocab_multiple=32"}),
              HasSubstr("model.vocab_multiple must be a multiple of 64 for head.precision = \"fp8\" and "
                        "parallel.tp = 4 with train.device"));
  EXPECT_EQ(device_refusal({head, bf16, "parallel.tp=4", "model.vocab_multiple=64"}), "accepted");
}

}  // namespace
}  // namespace ingot
