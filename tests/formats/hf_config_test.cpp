#include "ingot/formats/hf_config.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns a config.json that transformers wrote (tests/golden/formats/make_formats.py).
json golden(const std::string& name) {
  return json::parse(read_file(std::filesystem::path(INGOT_TEST_DATA) / "formats" / name));
}
HfModelConfig parsed(const json& config) { return parse_hf_config(config.dump(), "x/config.json"); }

std::string config_refusal(const std::string& text) {
  std::string message = data_error([&] { parse_hf_config(text, "x/config.json"); });
  if (message != "no error") {
    EXPECT_THAT(message, HasSubstr("x/config.json: "));
  }
  return message;
}
// Returns the error for `config` with `key` set to `value`.
std::string refusal_with(json config, const std::string& key, const json& value) {
  config[key] = value;
  return config_refusal(config.dump());
}

HfModelConfig gpt2() {
  HfModelConfig c;
  c.model_type = "gpt2";
  c.layers = 3;
  c.heads = c.kv_heads = 4;
  c.head_dim = 8;
  c.width = 32;
  c.ffn = 96;
  c.vocab = 100;
  c.context = 64;
  c.activation = "gelu_new";
  c.has_attention_bias = c.has_mlp_bias = true;
  c.dropout = 0.25;
  c.bos_id = 99;
  c.eos_ids = {99};
  c.dtype = "bfloat16";
  return c;
}

HfModelConfig llama() {
  HfModelConfig c = {.layers = 3,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_dim = 16,
                     .width = 32,
                     .ffn = 96,
                     .vocab = 100,
                     .context = 64,
                     .norm_eps = 1e-6,
                     .rope_theta = 500000,
                     .activation = "silu",
                     .is_tied = false,
                     .has_mlp_bias = true,
                     .bos_id = 1};
  return c;
}

TEST(HfConfig, ReadsWhatTransformersWrote) {
  HfModelConfig want = gpt2();
  want.ffn = 128;
  want.dropout = 0.1;
  EXPECT_EQ(parsed(golden("hf_gpt2.json")), want);
  HfModelConfig want_llama = llama();
  want_llama.eos_ids = {2};
  EXPECT_EQ(parsed(golden("hf_llama.json")), want_llama);
}

TEST(HfConfig, ReadsTheOlderSpelling) {
  json old = golden("hf_llama.json");
  old.erase("rope_parameters");
  old.erase("dtype");
  old["rope_theta"] = 500000.0;
  old["torch_dtype"] = "bfloat16";
  old["eos_token_id"] = {7, 8};
  HfModelConfig want = llama();
  want.dtype = "bfloat16";
  want.eos_ids = {7, 8};
  EXPECT_EQ(parsed(old), want);
}

TEST(HfConfig, AbsentKeysGetTransformersDefaults) {
  const HfModelConfig g =
      parsed({{"model_type", "gpt2"}, {"n_layer", 2}, {"n_head", 2}, {"n_embd", 8}, {"vocab_size", 9}});
  EXPECT_EQ(g.ffn, 32);
  EXPECT_EQ(g.context, 1024);
  EXPECT_EQ(g.activation, "gelu_new");
  EXPECT_TRUE(g.is_tied);
  const HfModelConfig l = parsed({{"model_type", "llama"},
                                  {"num_hidden_layers", 2},
                                  {"num_attention_heads", 2},
                                  {"hidden_size", 8},
                                  {"intermediate_size", 24},
                                  {"vocab_size", 9}});
  EXPECT_EQ(l.kv_heads, 2);
  EXPECT_EQ(l.head_dim, 4);
  EXPECT_EQ(l.rope_theta, 10000);
  EXPECT_EQ(l.norm_eps, 1e-6);
  EXPECT_FALSE(l.is_tied);
  EXPECT_EQ(l.bos_id, std::nullopt);
}

TEST(HfConfig, WhatIsWrittenIsReadBack) {
  EXPECT_EQ(parse_hf_config(hf_config_text(gpt2()), "x"), gpt2());
  EXPECT_EQ(parse_hf_config(hf_config_text(llama()), "x"), llama());
  HfModelConfig own = llama();
  own.model_type = "ingot";
  own.activation = "relu2";
  own.own_json = R"({"has_qk_norm":true})";
  EXPECT_EQ(parse_hf_config(hf_config_text(own), "x"), own);
}

// A configuration of LLaMA's relatives with the keys that each must have, and others.
json relative(const std::string& type, const json& others) {
  json config = {{"model_type", type}, {"num_hidden_layers", 4}, {"num_attention_heads", 2},
                 {"hidden_size", 8},   {"vocab_size", 9},        {"intermediate_size", 24}};
  config.update(others);
  return config;
}
std::string relative_refusal(const std::string& type, const json& others) {
  return config_refusal(relative(type, others).dump());
}
HfModelConfig read_back(const HfModelConfig& config) { return parse_hf_config(hf_config_text(config), "x"); }

TEST(HfConfig, MistralHasAWindowUnlessItIsNull) {
  EXPECT_EQ(parsed(relative("mistral", json::object())).window, 4096);
  EXPECT_EQ(parsed(relative("mistral", {{"sliding_window", 7}})).window, 7);
  EXPECT_EQ(parsed(relative("mistral", {{"sliding_window", nullptr}})).window, 0);
  for (int64_t window : {0, 7}) {
    HfModelConfig config = parsed(relative("mistral", {{"sliding_window", window}}));
    EXPECT_EQ(config.window, window);
    EXPECT_EQ(read_back(config), config);
  }
  EXPECT_EQ(
      json::parse(hf_config_text(parsed(relative("mistral", {{"sliding_window", 7}}))))["sliding_window"], 7);
}

TEST(HfConfig, QwenHasAWindowInAllBlocksOrInSome) {
  for (const char* type : {"qwen2", "qwen3"}) {
    EXPECT_EQ(parsed(relative(type, {{"sliding_window", 7}})).window, 0);
    const json used = {{"sliding_window", 7}, {"use_sliding_window", true}, {"max_window_layers", 0}};
    EXPECT_EQ(parsed(relative(type, used)).window, 7);
    EXPECT_EQ(read_back(parsed(relative(type, used))).window, 7);
    EXPECT_EQ(parsed(relative(type, {{"sliding_window", 7}, {"use_sliding_window", true}})).window, 0);
    const HfModelConfig last = parsed(
        relative(type, {{"sliding_window", 7}, {"use_sliding_window", true}, {"max_window_layers", 2}}));
    EXPECT_EQ(last.window, 7);
    EXPECT_EQ(last.full_layers, (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(read_back(last), last);
    EXPECT_EQ(json::parse(hf_config_text(last))["max_window_layers"], 2);
    json listed = used;
    listed["layer_types"] = std::vector<std::string>(4, "full_attention");
    EXPECT_EQ(parsed(relative(type, listed)).window, 0);
    listed["layer_types"][2] = "sliding_attention";
    const HfModelConfig third = parsed(relative(type, listed));  // the list overrules max_window_layers
    EXPECT_EQ(third.full_layers, (std::vector<int64_t>{0, 1, 3}));
    EXPECT_EQ(read_back(third), third);
    listed["layer_types"][1] = "chunked_attention";
    EXPECT_THAT(relative_refusal(type, listed), HasSubstr("got \"chunked_attention\""));
    json many = used;
    many["num_hidden_layers"] = 2'000'000'000;
    EXPECT_THAT(relative_refusal(type, many), HasSubstr("num_hidden_layers must be at most 10000"));
  }
  EXPECT_EQ(parsed(relative("qwen3", json::object())).head_dim, 128);
  EXPECT_EQ(parsed(relative("qwen2", json::object())).head_dim, 4);
}

TEST(HfConfig, Smollm3ListsTheBlocksWithoutRotaryPositions) {
  EXPECT_EQ(parsed(relative("smollm3", json::object())).nope_every, 4);
  EXPECT_EQ(parsed(relative("smollm3", json::object())).rope_theta, 2e6);
  EXPECT_TRUE(parsed(relative("smollm3", json::object())).is_tied);
  EXPECT_EQ(parsed(relative("smollm3", {{"no_rope_layers", {1, 0, 1, 0}}})).nope_every, 2);
  const HfModelConfig all = parsed(relative("smollm3", {{"no_rope_layers", {1, 1, 1, 1, 1}}}));
  EXPECT_EQ(all.nope_every, 0);
  EXPECT_EQ(read_back(all), all);
  EXPECT_THAT(relative_refusal("smollm3", {{"no_rope_layers", {1, 0, 1, 1}}}),
              HasSubstr("for one n; block 3"));
  EXPECT_THAT(relative_refusal("smollm3", {{"no_rope_layers", {0, 1}}}), HasSubstr("at least 4 numbers"));
  EXPECT_THAT(relative_refusal("smollm3", {{"no_rope_layers", {1, 1, 2, 0}}}),
              HasSubstr("must be 0 or 1, got 2"));
}

TEST(HfConfig, Smollm3HasWindowsWhereItDoesNotRotateUnlessBlocksAreListed) {
  json used = {{"use_sliding_window", true}, {"sliding_window", 7}, {"no_rope_layer_interval", 2}};
  const HfModelConfig usual = parsed(relative("smollm3", used));
  EXPECT_EQ(usual.window, 7);
  EXPECT_EQ(usual.full_layers, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(read_back(usual), usual);
  used["layer_types"] = {"sliding_attention", "sliding_attention", "full_attention", "sliding_attention"};
  const HfModelConfig listed = parsed(relative("smollm3", used));
  EXPECT_EQ(listed.full_layers, (std::vector<int64_t>{2}));
  EXPECT_EQ(read_back(listed), listed);
}

TEST(HfConfig, Olmo2HasItsOwnDefaults) {
  const HfModelConfig config = parsed(relative("olmo2", json::object()));
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.context, 2048);
  EXPECT_FALSE(config.is_tied);
  EXPECT_EQ(read_back(config), config);
}

TEST(HfConfig, ScaledRopeIsReadInBothSpellings) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 32}};
  const HfModelConfig old = parsed(relative("llama", {{"rope_scaling", scaling}, {"rope_theta", 5.0}}));
  EXPECT_EQ(old.rope.type, "llama3");
  EXPECT_EQ(old.rope.factor, 8);
  EXPECT_EQ(old.rope.original_context, 32);
  json now = scaling;
  now["rope_theta"] = 5.0;
  EXPECT_EQ(parsed(relative("llama", {{"rope_parameters", now}})), old);
  EXPECT_EQ(read_back(old), old);
  now["factor"] = 4.0;
  EXPECT_THAT(relative_refusal("llama", {{"rope_parameters", now}, {"rope_scaling", scaling}}),
              HasSubstr("rope_parameters and rope_scaling disagree"));
  now["high_freq_factor"] = 1.0;
  EXPECT_THAT(relative_refusal("llama", {{"rope_parameters", now}}),
              HasSubstr("must be above low_freq_factor"));
  EXPECT_THAT(relative_refusal("qwen2", {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}),
              HasSubstr("whole heads"));
}

TEST(HfConfig, YarnIsReadWithTransformersDefaults) {
  json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"rope_theta", 5.0}};
  const auto with = [&](const json& changes) {
    json changed = yarn;
    changed.update(changes);
    return relative("qwen2", {{"rope_parameters", changed}, {"max_position_embeddings", 48}});
  };
  const auto refused = [&](const json& changes) {
    json changed = yarn;
    changed.update(changes);
    return relative_refusal("qwen2", {{"rope_parameters", changed}});
  };
  const HfModelConfig c = parsed(with(json::object()));
  EXPECT_EQ(c.rope, (HfRope{.type = "yarn", .factor = 4, .original_context = 48}));
  EXPECT_EQ(parsed(with({{"beta_fast", 0}, {"beta_slow", nullptr}})), c);
  EXPECT_EQ(parsed(with({{"mscale", 1}})), c);  // transformers ignores one without the other
  const HfModelConfig mscale = parsed(with({{"mscale", 1}, {"mscale_all_dim", 0.5}, {"beta_fast", 16}}));
  EXPECT_DOUBLE_EQ(mscale.rope.attention_factor, (0.1 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1));
  EXPECT_EQ(read_back(c), c);
  EXPECT_EQ(read_back(mscale), mscale);
  EXPECT_EQ(
      parsed(with({{"attention_factor", 1.25}, {"mscale", 1}, {"mscale_all_dim", 1}})).rope.attention_factor,
      1.25);
  EXPECT_THAT(refused({{"factor", 0.5}}), HasSubstr("factor of yarn must be at least 1, got 0.5"));
  EXPECT_THAT(refused({{"beta_fast", 1}}), HasSubstr("beta_fast 1 must be above beta_slow 1"));
  EXPECT_THAT(refused({{"attention_factor", 0}}),
              HasSubstr("attention_factor of a scaled RoPE must be above 0"));
  EXPECT_THAT(refused({{"truncate", false}}), HasSubstr("truncate is false"));
  EXPECT_THAT(refused({{"rope_theta", 1}}), HasSubstr("rope_theta must be above 1 with yarn, got 1"));
}

TEST(HfConfig, WritesBothSpellings) {
  const json out = json::parse(hf_config_text(llama()));
  EXPECT_EQ(out["dtype"], "float32");
  EXPECT_EQ(out["torch_dtype"], "float32");
  EXPECT_EQ(out["rope_theta"], 500000.0);
  EXPECT_EQ(out["rope_parameters"]["rope_theta"], 500000.0);
  EXPECT_EQ(out["rope_parameters"]["rope_type"], "default");
  EXPECT_EQ(out["architectures"][0], "LlamaForCausalLM");
  EXPECT_EQ(json::parse(hf_config_text(gpt2()))["architectures"][0], "GPT2LMHeadModel");
}

TEST(HfConfig, WriterRefusesMistakes) {
  HfModelConfig c = llama();
  c.model_type = "mamba";
  EXPECT_THROW(hf_config_text(c), Error);
  c = llama();
  c.own_json = "[1]";
  EXPECT_THROW(hf_config_text(c), Error);
}

TEST(HfConfig, RefusesWhatItDoesNotSupportAndSaysWhy) {
  const json g = golden("hf_gpt2.json"), l = golden("hf_llama.json");
  EXPECT_THAT(config_refusal(""), HasSubstr("not JSON"));
  EXPECT_THAT(config_refusal("{\"a\":\"\xff\"}"), HasSubstr("not JSON"));
  EXPECT_THAT(config_refusal("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(config_refusal(std::string(100'000, '[')), HasSubstr("nested deeper than 256 levels"));
  EXPECT_THAT(config_refusal(std::string(200, '[')), HasSubstr("not JSON"));
  EXPECT_THAT(config_refusal(R"({"n_head":1,"n_head":2})"), HasSubstr("\"n_head\" is given twice"));
  EXPECT_THAT(config_refusal(std::string((4 << 20) + 1, ' ')), HasSubstr("too many"));
  EXPECT_THAT(config_refusal("{}"), HasSubstr("model_type \"\" is not supported"));
  EXPECT_THAT(refusal_with(g, "model_type", "bert"), AllOf(HasSubstr("\"bert\""), HasSubstr("gpt2, llama")));
  EXPECT_THAT(refusal_with(g, "model_type", 7), HasSubstr("model_type must be a string, got 7"));
  EXPECT_THAT(refusal_with(g, "vocab_size", nullptr), HasSubstr("\"vocab_size\" is missing"));
  EXPECT_THAT(refusal_with(g, "n_layer", 0),
              HasSubstr("n_layer must be a whole number from 1 to 2147483647, got 0"));
  for (const json& bad :
       {json(-1), json(1.5), json("12"), json(1e30), json(uint64_t{1} << 63), json::array()})
    EXPECT_THAT(refusal_with(g, "n_embd", bad), HasSubstr("n_embd must be a whole number")) << bad;
  EXPECT_THAT(refusal_with(g, "n_head", 5), HasSubstr("n_embd 32 must be a multiple of n_head 5"));
  EXPECT_THAT(refusal_with(g, "add_cross_attention", true), HasSubstr("cross attention"));
  EXPECT_THAT(refusal_with(g, "scale_attn_weights", false), HasSubstr("1/sqrt"));
  EXPECT_THAT(refusal_with(g, "scale_attn_by_inverse_layer_idx", true), HasSubstr("1/sqrt"));
  EXPECT_THAT(refusal_with(g, "layer_norm_epsilon", -1), HasSubstr("layer_norm_epsilon must be a number"));
  EXPECT_THAT(refusal_with(g, "tie_word_embeddings", 1), HasSubstr("must be true or false, got 1"));
  EXPECT_THAT(refusal_with(g, "dtype", "int8"), HasSubstr("dtype \"int8\""));
  EXPECT_THAT(refusal_with(g, "eos_token_id", -2), HasSubstr("eos_token_id must be a token id"));
  EXPECT_THAT(refusal_with(g, "quantization_config", {{"bits", 4}}), HasSubstr("quantised"));
  EXPECT_THAT(refusal_with(l, "num_key_value_heads", 3),
              HasSubstr("num_attention_heads 4 must be a multiple of"));
  EXPECT_THAT(refusal_with(l, "rope_scaling", {{"type", "longrope"}, {"factor", 2}}),
              HasSubstr("rope_type \"longrope\" is not supported; default, linear, llama3 and yarn are"));
  EXPECT_THAT(refusal_with(l, "rope_parameters", {{"rope_type", "llama3"}}),
              HasSubstr("factor of a scaled RoPE must be above 0"));
  EXPECT_THAT(refusal_with(l, "rope_parameters", 3), HasSubstr("rope_parameters must be an object"));
  EXPECT_THAT(refusal_with(l, "partial_rotary_factor", 0.5), HasSubstr("whole heads"));
  json no_head_dim = l;
  no_head_dim.erase("head_dim");
  EXPECT_THAT(refusal_with(no_head_dim, "hidden_size", 33),
              HasSubstr("must be a multiple of num_attention_heads 4"));
}

TEST(HfConfig, SideFilesNameTheTokens) {
  const HfTokenizerConfig tokens{
      .tokens = {{"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"unk_token", ""}},
      .context = 64,
      .chat_template_json = "\"{{x}}\""};
  const json tokenizer = json::parse(hf_tokenizer_config_text(tokens));
  EXPECT_EQ(tokenizer["eos_token"], "<|endoftext|>");
  EXPECT_EQ(tokenizer["model_max_length"], 64);
  EXPECT_EQ(tokenizer["chat_template"], "{{x}}");
  EXPECT_FALSE(tokenizer.contains("unk_token"));
  const json generation = json::parse(hf_generation_config_text(llama()));
  EXPECT_EQ(generation["bos_token_id"], 1);
  EXPECT_FALSE(generation.contains("eos_token_id"));
  HfModelConfig several = llama();
  several.eos_ids = {7, 8};
  EXPECT_EQ(json::parse(hf_generation_config_text(several))["eos_token_id"], json({7, 8}));
  EXPECT_EQ(read_back(several), several);
}

}  // namespace
}  // namespace ingot
