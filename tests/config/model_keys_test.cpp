// The keys of what Hugging Face's families add to LLaMA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/config/built_config.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

std::string model_refusal(const std::vector<std::string>& overrides) {
  return usage_error([&] { built_config("", overrides); });
}

TEST(ModelKeys, ADeviceComputesEveryKindOfModel) {
  const std::string device = "train.device=cuda";
  EXPECT_EQ(model_refusal({device, "model.context=64", "model.window=63", "model.qkv_bias=true",
                           "model.rope_scaling=llama3", "model.nope_every=2", "model.qk_norm=true",
                           "model.qk_norm_gain=true"}),
            "no error");
}

TEST(ModelKeys, RefuseWhatDoesNotFitTogether) {
  EXPECT_THAT(model_refusal({"model.qk_norm_gain=true"}), HasSubstr("needs model.qk_norm = true"));
  EXPECT_THAT(model_refusal({"model.qk_norm_over=width"}),
              HasSubstr("model.qk_norm_over = width needs model.qk_norm = true"));
  EXPECT_THAT(model_refusal({"model.positions=learned", "model.nope_every=2"}),
              HasSubstr("model.nope_every"));
  EXPECT_THAT(model_refusal({"model.positions=learned", "model.rope_scaling=linear"}),
              HasSubstr("model.rope_scaling is for model.positions = rope"));
  EXPECT_THAT(model_refusal({"model.rope_scaling=linear", "model.rope_factor=0"}),
              HasSubstr("model.rope_factor must be above 0, got 0"));
  EXPECT_THAT(model_refusal({"model.rope_scaling=llama3", "model.rope_low_freq_factor=4"}),
              HasSubstr("model.rope_low_freq_factor = 4 must be above 0 and below"));
  EXPECT_THAT(model_refusal({"model.rope_scaling=yarn", "model.rope_beta_fast=1"}),
              HasSubstr("model.rope_beta_slow = 1 must be above 0 and below model.rope_beta_fast = 1"));
  EXPECT_THAT(model_refusal({"model.rope_scaling=yarn", "model.rope_factor=0.5"}),
              HasSubstr("model.rope_factor must be at least 1 with model.rope_scaling = yarn, got 0.5"));
  EXPECT_THAT(model_refusal({"model.rope_scaling=yarn", "model.rope_attention_factor=-1"}),
              HasSubstr("model.rope_attention_factor must not be negative, got -1"));
  EXPECT_THAT(model_refusal({"model.rope_scaling=yarn", "model.rope_theta=1"}),
              HasSubstr("model.rope_theta must be above 1 with model.rope_scaling = yarn, got 1"));
  EXPECT_THAT(model_refusal({"model.window=-1"}), HasSubstr("model.window"));
  EXPECT_THAT(model_refusal({"model.full_layers=[0]"}), HasSubstr("set model.window, or leave it out"));
  const std::string window = "model.window=8", layers = "model.layers=4";
  EXPECT_EQ(model_refusal({window, layers, "model.full_layers=[0, 3]"}), "no error");
  for (const char* list : {"[4]", "[-1]", "[1, 1]", "[2, 0]"})
    EXPECT_THAT(model_refusal({window, layers, std::string("model.full_layers=") + list}),
                HasSubstr("model.full_layers must be ascending blocks from 0 to 3"));
  EXPECT_THAT(model_refusal({window, layers, "model.full_layers=[0.5]"}),
              HasSubstr("a list of whole numbers"));
}

// The parameters of Qwen2.5-0.5B and Qwen3-0.6B, as their model cards round them: 0.49 and 0.6 billion.
TEST(ModelKeys, CountTheParametersOfPublishedModels) {
  ModelConfig qwen2 = {.layers = 24,
                       .heads = 14,
                       .kv_heads = 2,
                       .width = 896,
                       .ffn = 4864,
                       .vocab = 151936,
                       .has_qkv_bias = true};
  EXPECT_EQ(qwen2.resolved().parameters(), 494'032'768);
  ModelConfig qwen3;
  qwen3.layers = 28;
  qwen3.heads = 16;
  qwen3.kv_heads = 8;
  qwen3.head_dim = 128;
  qwen3.width = 1024;
  qwen3.ffn = 3072;
  qwen3.vocab = 151936;
  qwen3.has_qk_norm = qwen3.has_qk_norm_gain = true;
  EXPECT_EQ(qwen3.resolved().parameters(), 596'049'920);
}

TEST(ModelKeys, AWindowCostsFewerOperationsThanTheWholeContext) {
  ModelConfig c;
  c.context = 1024;
  c.vocab = 256;
  const double whole = c.resolved().flops_per_token();
  c.window = 64;
  EXPECT_EQ(whole - c.resolved().flops_per_token(), 6.0 * static_cast<double>(c.layers * 128 * (1024 - 128)));
}

}  // namespace
}  // namespace ingot
