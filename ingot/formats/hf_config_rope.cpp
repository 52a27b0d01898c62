// Reads the parameters of rotary positions, in the spellings of all versions of transformers.
#include <algorithm>
#include <array>
#include <cmath>

#include "ingot/formats/hf_config_reader.h"

namespace ingot {
namespace {

using nlohmann::json;
using Reader = HfConfigReader;

double positive(const Reader& in, const char* key, double absent) {
  const double value = in.number(key, absent);
  if (!(value > 0)) in.refuse("{} of a scaled RoPE must be above 0, got {}", key, value);
  return value;
}

void read_yarn(const Reader& in, HfRope& rope) {
  const auto or_default = [&](const char* key, double absent) {
    const double value = in.number(key, 0);
    return value > 0 ? value : absent;  // as in transformers, 0 stands for the default too
  };
  if (rope.factor < 1) in.refuse("factor of yarn must be at least 1, got {}", rope.factor);
  if (!in.boolean("truncate", true))
    in.refuse("truncate is false; Ingot rounds the limits of yarn to whole dimensions");
  rope.beta_fast = or_default("beta_fast", 32);
  rope.beta_slow = or_default("beta_slow", 1);
  if (!(rope.beta_fast > rope.beta_slow))
    in.refuse("beta_fast {} must be above beta_slow {}", rope.beta_fast, rope.beta_slow);
  const double mscale = in.number("mscale", 0), all_dims = in.number("mscale_all_dim", 0);
  const auto grown = [&](double by) { return 0.1 * by * std::log(rope.factor) + 1; };
  if (in.find({"attention_factor"}))
    rope.attention_factor = positive(in, "attention_factor", 0);
  else if (mscale > 0 && all_dims > 0)
    rope.attention_factor = grown(mscale) / grown(all_dims);
}

bool is_rope_key(std::string_view key) {
  static constexpr std::array<std::string_view, 14> kKeys = {"rope_theta",
                                                             "rope_type",
                                                             "type",
                                                             "factor",
                                                             "original_max_position_embeddings",
                                                             "low_freq_factor",
                                                             "high_freq_factor",
                                                             "attention_factor",
                                                             "beta_fast",
                                                             "beta_slow",
                                                             "mscale",
                                                             "mscale_all_dim",
                                                             "truncate",
                                                             "partial_rotary_factor"};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

// Reads the numbers of a scaled RoPE, whose type is known.
void read_scaling(const Reader& in, HfRope& rope, int64_t context) {
  rope.factor = positive(in, "factor", 0);
  if (rope.type == "linear") return;
  rope.original_context = in.whole("original_max_position_embeddings", context);
  if (rope.type == "yarn") return read_yarn(in, rope);
  rope.low_freq_factor = positive(in, "low_freq_factor", 0);
  rope.high_freq_factor = positive(in, "high_freq_factor", 0);
  if (!(rope.high_freq_factor > rope.low_freq_factor))
    in.refuse("high_freq_factor {} must be above low_freq_factor {}", rope.high_freq_factor,
              rope.low_freq_factor);
}

// What one object with the parameters of a RoPE says; nullopt where it says nothing.
struct RopeObject {
  std::optional<HfRope> rope = {};
  std::optional<double> theta = {};
};

// Reads rope_parameters or, with the spelling of older versions, rope_scaling.
RopeObject read_rope_object(const Reader& config, const char* name, int64_t context) {
  const json object = config.object(name);
  const Reader in(object, fmt::format("{}: {}", config.label(), name));
  RopeObject read;
  bool has_scaling = false;
  for (const auto& [key, value] : object.items()) {
    if (value.is_null()) continue;
    if (value.is_object())
      in.refuse("{:?} is an object; Ingot has one RoPE for all layers", key.substr(0, 80));
    if (!is_rope_key(key))
      in.refuse("key {:?} is unknown; delete it if the model computes the same without it",
                key.substr(0, 80));
    has_scaling = has_scaling || (key != "rope_theta" && key != "partial_rotary_factor");
  }
  if (in.number("partial_rotary_factor", 1) != 1)
    in.refuse("partial_rotary_factor must be 1; Ingot rotates whole heads");
  if (in.find({"rope_theta"})) read.theta = in.number("rope_theta", 0);
  if (!has_scaling) return read;
  if (!in.find({"rope_type", "type"}))
    in.refuse("there is no rope_type; add it (default, linear, llama3 or yarn)");
  HfRope rope;
  rope.type = in.text({"rope_type", "type"}, "");
  if (in.text({"type", "rope_type"}, "") != rope.type) in.refuse("rope_type and type disagree; delete type");
  if (rope.type != "default" && rope.type != "linear" && rope.type != "llama3" && rope.type != "yarn")
    in.refuse("rope_type {:?} is not supported; default, linear, llama3 and yarn are",
              rope.type.substr(0, 80));
  if (rope.type != "default") read_scaling(in, rope, context);
  read.rope = rope;
  return read;
}

}  // namespace

void read_hf_rope(const Reader& in, HfModelConfig& c) {
  const RopeObject now = read_rope_object(in, "rope_parameters", c.context),
                   before = read_rope_object(in, "rope_scaling", c.context);
  if (now.rope && before.rope && !(*now.rope == *before.rope))
    in.refuse("rope_parameters and rope_scaling disagree; delete rope_scaling");
  c.rope = now.rope.value_or(before.rope.value_or(HfRope{}));
  std::optional<double> theta;
  if (in.find({"rope_theta"})) theta = in.number("rope_theta", 0);
  for (const std::optional<double>& other : {now.theta, before.theta}) {
    if (theta && other && *theta != *other)
      in.refuse("rope_theta is {} and {} in two places; delete the wrong one", *theta, *other);
    if (other) theta = other;
  }
  c.rope_theta = theta.value_or(c.model_type == "smollm3" ? 2e6 : 10000);
  if (c.rope.type == "yarn" && !(c.rope_theta > 1))
    in.refuse("rope_theta must be above 1 with yarn, got {}", c.rope_theta);
  if (in.number("partial_rotary_factor", 1) != 1)
    in.refuse("partial_rotary_factor must be 1; Ingot rotates whole heads");
  for (const char* key : {"use_mrope", "rope_interleaved"})
    if (in.boolean(key, false)) in.refuse("{} is set; Ingot has no such RoPE", key);
}

}  // namespace ingot
