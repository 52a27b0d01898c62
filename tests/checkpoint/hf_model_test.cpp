// Models and configs of Hugging Face: which family computes a model, and that no field is lost on the way.
#include "ingot/checkpoint/hf_model.h"

#include <gtest/gtest.h>

#include <functional>

#include "ingot/core/error.h"

namespace ingot {
namespace {

using Change = std::function<void(ModelConfig&)>;

// A LLaMA none of whose fields has its default.
ModelConfig hf_llama() {
  ModelConfig c;
  c.layers = 3;
  c.heads = 6;
  c.kv_heads = 2;
  c.head_dim = 10;
  c.width = 48;
  c.ffn = 72;
  c.vocab = 256;
  c.context = 33;
  c.is_tied = false;
  c.norm_eps = 3e-6;
  c.rope_theta = 5000;
  c.init_std = 0.03;
  c.dropout = 0.125;
  return c;
}

ModelConfig hf_gpt2() {
  ModelConfig c = hf_llama();
  c.norm = NormKind::kLayerNorm;
  c.positions = PositionKind::kLearned;
  c.mlp = Activation::kGeluTanh;
  c.has_bias = true;
  c.kv_heads = 6;
  c.head_dim = 8;
  return c;
}

ModelConfig with(ModelConfig c, const Change& change) {
  change(c);
  return c.resolved();
}

void after_over_width(ModelConfig& c) {
  c.norm_place = NormPlace::kAfter;
  c.has_qk_norm = c.has_qk_norm_gain = true;
  c.qk_norm_over = QkNormOver::kWidth;
}

struct FamilyCase {
  const char* family;
  Change change;
};

const std::vector<FamilyCase> kOfLlama = {
    {"llama", [](ModelConfig&) {}},
    {"llama", [](ModelConfig& c) { c.has_bias = true; }},
    {"mistral", [](ModelConfig& c) { c.width = 50; }},
    {"mistral", [](ModelConfig& c) { c.window = 7; }},
    {"ingot", [](ModelConfig& c) { c.window = 7, c.has_bias = true; }},
    {"qwen2", [](ModelConfig& c) { c.has_qkv_bias = true; }},
    {"qwen2", [](ModelConfig& c) { c.has_qkv_bias = true, c.window = 7, c.full_layers = {1}; }},
    {"qwen3", [](ModelConfig& c) { c.has_qk_norm = c.has_qk_norm_gain = true; }},
    {"ingot", [](ModelConfig& c) { c.has_qk_norm = c.has_qk_norm_gain = c.has_bias = true; }},
    {"ingot", [](ModelConfig& c) { c.has_qk_norm = c.has_qk_norm_gain = c.has_qkv_bias = true; }},
    {"smollm3", [](ModelConfig& c) { c.nope_every = 2; }},
    {"smollm3", [](ModelConfig& c) { c.window = 7, c.full_layers = {1}; }},
    {"ingot", [](ModelConfig& c) { c.nope_every = 2, c.has_qk_norm = c.has_qk_norm_gain = true; }},
    {"olmo2", after_over_width},
    {"ingot", [](ModelConfig& c) { after_over_width(c), c.norm_place = NormPlace::kBefore; }},
    {"ingot", [](ModelConfig& c) { after_over_width(c), c.qk_norm_over = QkNormOver::kHead; }},
    {"ingot", [](ModelConfig& c) { after_over_width(c), c.window = 7; }},
    {"ingot", [](ModelConfig& c) { after_over_width(c), c.nope_every = 2; }},
    {"ingot", [](ModelConfig& c) { after_over_width(c), c.has_qkv_bias = true; }},
    {"ingot", [](ModelConfig& c) { c.norm = NormKind::kLayerNorm; }},
    {"ingot", [](ModelConfig& c) { c.positions = PositionKind::kLearned; }},
    {"ingot", [](ModelConfig& c) { c.mlp = Activation::kGeluTanh; }},
    {"ingot", [](ModelConfig& c) { c.cap.kind = LogitCap::kTanh; }},
    {"ingot", [](ModelConfig& c) { c.has_skips = true; }},
    {"ingot", [](ModelConfig& c) { c.rope_dims = 4; }},
};

const std::vector<FamilyCase> kOfGpt2 = {
    {"gpt2", [](ModelConfig&) {}},
    {"gpt2", [](ModelConfig& c) { c.mlp = Activation::kGeluExact; }},
    {"ingot", [](ModelConfig& c) { c.mlp = Activation::kRelu2; }},
    {"ingot", [](ModelConfig& c) { c.mlp = Activation::kSwiglu; }},
    {"ingot", [](ModelConfig& c) { c.norm = NormKind::kRmsNorm; }},
    {"ingot", [](ModelConfig& c) { c.positions = PositionKind::kRope; }},
    {"ingot", [](ModelConfig& c) { c.kv_heads = 3; }},
    {"ingot", [](ModelConfig& c) { c.head_dim = 6; }},
    {"ingot", [](ModelConfig& c) { c.has_qk_norm = true; }},
    {"ingot", [](ModelConfig& c) { c.window = 7; }},
    {"ingot", [](ModelConfig& c) { c.norm_place = NormPlace::kAfter; }},
};

// The family is as expected, and a config of transformers becomes the same model again. from_hf_config leaves
// dropout to the run.
void check_families(const ModelConfig& from, const std::vector<FamilyCase>& cases) {
  const std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const ModelConfig c = with(from, cases[i].change);
    EXPECT_STREQ(hf_family(c), cases[i].family);
    const HfModelConfig hf = to_hf_config(c, *tokenizer);
    if (hf.model_type == "ingot") {
      EXPECT_THROW(from_hf_config(hf), Error);
      continue;
    }
    ModelConfig again = from_hf_config(hf);
    EXPECT_EQ(again.dropout, 0);
    again.dropout = c.dropout;
    EXPECT_EQ(to_hf_config(again.resolved(), *tokenizer), hf);
    EXPECT_EQ(again.resolved().parameters(), c.parameters());
  }
}

TEST(HfModel, FamilyOfARelativeOfLlama) { check_families(hf_llama(), kOfLlama); }
TEST(HfModel, FamilyOfARelativeOfGpt2) { check_families(hf_gpt2(), kOfGpt2); }

TEST(HfModel, KeepsEveryField) {
  const ModelConfig c = with(hf_llama(), [](ModelConfig& model) {
    model.window = 7;
    model.full_layers = {0, 2};
    model.nope_every = 2;
    model.has_bias = true;
    model.rope_scaling = {.kind = RopeScaling::Kind::kLlama3,
                          .factor = 3,
                          .low_freq_factor = 1.5,
                          .high_freq_factor = 5,
                          .original_context = 11};
  });
  HfModelConfig want;
  want.model_type = "smollm3";
  want.layers = 3;
  want.heads = 6;
  want.kv_heads = 2;
  want.head_dim = 10;
  want.width = 48;
  want.ffn = 72;
  want.vocab = 256;
  want.context = 33;
  want.norm_eps = 3e-6;
  want.rope_theta = 5000;
  want.rope = {
      .type = "llama3", .factor = 3, .low_freq_factor = 1.5, .high_freq_factor = 5, .original_context = 11};
  want.window = 7;
  want.full_layers = {0, 2};
  want.nope_every = 2;
  want.activation = "silu";
  want.is_tied = false;
  want.has_attention_bias = want.has_mlp_bias = true;
  want.dropout = 0.125;
  want.init_std = 0.03;
  const HfModelConfig hf = to_hf_config(c, *make_byte_tokenizer());
  EXPECT_EQ(hf, want);
  EXPECT_EQ(from_hf_config(hf).rope_scaling.kind, RopeScaling::Kind::kLlama3);
}

TEST(HfModel, RefusesBiasesInHalfOfTheLinears) {
  HfModelConfig hf = to_hf_config(hf_llama().resolved(), *make_byte_tokenizer());
  hf.has_mlp_bias = true;
  EXPECT_THROW(from_hf_config(hf), Error);
}

}  // namespace
}  // namespace ingot
