// parse_hf_config against transformers' own configuration classes: tests/golden/formats/hf_config_keys.json
// has every key of every supported family, and whether a value of it changes what a tiny model computes
// (tools/make_hf_keys_golden.py).
#include "ingot/formats/hf_config_keys.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "ingot/core/file.h"
#include "ingot/formats/hf_config.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string keys_error(const json& config) {
  return data_error([&] { parse_hf_config(config.dump(), "x/config.json"); });
}

json golden_keys() {
  return json::parse(read_file(std::filesystem::path(INGOT_TEST_DATA) / "formats" / "hf_config_keys.json"));
}

TEST(HfConfigKeys, EveryKeyOfTransformersIsReadIrrelevantOrRefused) {
  int64_t tried = 0;
  const json golden = golden_keys();
  for (const auto& [name, family] : golden.items()) {
    if (!family.is_object()) continue;
    const json& base = family["base"];
    const HfModelConfig want = parse_hf_config(base.dump(), "x/config.json");
    for (const auto& [key, rows] : family["keys"].items()) {
      const HfConfigKey* known = find_hf_config_key(want.model_type, key);
      ASSERT_TRUE(known) << name << ": " << key << " is in no row of hf_config_keys.cpp";
      for (const json& row : rows) {
        json config = base;
        config[key] = row["value"];
        const std::string error = keys_error(config);
        const bool is_other = error != "no error" || !(parse_hf_config(config.dump(), "x") == want);
        ++tried;
        EXPECT_TRUE(is_other || !row["changes"].get<bool>())
            << name << ": " << key << " = " << row["value"]
            << " changes what transformers computes, and Ingot reads nothing from it";
        EXPECT_TRUE(!is_other || known->irrelevant.empty())
            << name << ": " << key << " is read, but the table says: " << known->irrelevant;
      }
    }
  }
  EXPECT_GT(tried, 300);
}

TEST(HfConfigKeys, UnknownKeysAreRefusedUnlessTheyAreNull) {
  const json base = golden_keys()["llama"]["base"];
  for (const auto& [key, value] : {std::pair<std::string, json>("logit_scale", 0.5),
                                   {"final_logit_softcapping", 30.0},
                                   {"use_qk_norm", true},
                                   {"n_embd", 16}}) {
    json config = base;
    config[key] = value;
    EXPECT_THAT(keys_error(config), AllOf(HasSubstr("x/config.json: key \"" + key + "\" = " + value.dump()),
                                          HasSubstr("unknown in a llama; delete it if")));
    config[key] = nullptr;
    EXPECT_EQ(keys_error(config), "no error");
  }
  json config = base;
  config["_name_or_path"] = "a/b";
  config["pruned_heads"] = json::object();
  EXPECT_EQ(keys_error(config), "no error");
  config["pruned_heads"] = {{"0", {1}}};
  EXPECT_THAT(keys_error(config), HasSubstr("pruned_heads is set"));
  config.erase("pruned_heads");
  config["auto_map"] = {{"AutoModelForCausalLM", "modeling_x.X"}};
  EXPECT_THAT(keys_error(config), HasSubstr("auto_map names code"));
}

// Parameters of RoPE that the reader before took for others: theta 10000 instead of 500000, or no scaling.
TEST(HfConfigKeys, ParametersOfRopeAreReadOrRefused) {
  const auto error = [base = golden_keys()["llama"]["base"]](const json& others) {
    json config = base;
    config.update(others);
    return keys_error(config);
  };
  const json plain = {{"rope_type", "default"}, {"rope_theta", 500000}};
  const json scaled = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(error({{"rope_parameters", plain}}), "no error");
  EXPECT_THAT(error({{"rope_parameters", {{"full_attention", plain}, {"sliding_attention", plain}}}}),
              AllOf(HasSubstr("rope_parameters: \"full_attention\" is an object"), HasSubstr("one RoPE")));
  EXPECT_THAT(error({{"rope_scaling", {{"factor", 8.0}, {"original_max_position_embeddings", 32}}}}),
              HasSubstr("rope_scaling: there is no rope_type; add it"));
  EXPECT_THAT(error({{"rope_parameters", {{"factor", 8.0}}}}), HasSubstr("there is no rope_type"));
  EXPECT_THAT(error({{"rope_parameters", plain}, {"rope_theta", 10000}}),
              HasSubstr("rope_theta is 10000 and 500000 in two places"));
  EXPECT_THAT(error({{"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"rope_theta", 5}}},
                     {"rope_parameters", {{"rope_theta", 10000}}}}),
              HasSubstr("rope_theta is 10000 and 5 in two places"));
  EXPECT_THAT(error({{"rope_parameters", plain}, {"rope_scaling", scaled}}), HasSubstr("disagree"));
  EXPECT_THAT(error({{"rope_scaling", {{"rope_type", "linear"}, {"type", "yarn"}, {"factor", 2}}}}),
              HasSubstr("rope_type and type disagree"));
  EXPECT_THAT(error({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}, {"mrope_section", {1, 1}}}}}),
              HasSubstr("rope_scaling: key \"mrope_section\" is unknown"));
  EXPECT_THAT(error({{"use_mrope", true}}), HasSubstr("use_mrope is set"));
  EXPECT_EQ(error({{"use_mrope", false},
                   {"rope_interleaved", false},
                   {"rope_theta", 500000},
                   {"rope_parameters", plain}}),
            "no error");
}

TEST(HfConfigKeys, WindowsOfLayersNeedAWindow) {
  json config = golden_keys()["qwen2"]["base"];
  config["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(keys_error(config), "no error");
  config["layer_types"][1] = "sliding_attention";
  EXPECT_THAT(keys_error(config), HasSubstr("layer_types has sliding_attention, but use_sliding_window"));
}

}  // namespace
}  // namespace ingot
