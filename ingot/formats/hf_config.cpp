#include "ingot/formats/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/formats/hf_config_keys.h"

namespace ingot {
namespace {

using nlohmann::json;

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr int kMaxDepth = 256;

// Reads a JSON object's values by key and type. Errors name the key, the expected and the found value.
class Reader {
 public:
  static constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();

  Reader(const json& object, std::string label) : object_(object), label_(std::move(label)) {}

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kData, "{}: {}", label_, fmt::format(format, std::forward<Args>(args)...));
  }

  // Returns the value of the first key that exists and is not null, or nullptr if there is none.
  const json* find(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (const auto it = object_.find(key); it != object_.end() && !it->is_null()) return &*it;
    return nullptr;
  }

  // A whole number in [least, 2^31). If the key is missing, returns `absent`, or fails if that is nullopt.
  int64_t whole(const char* key, std::optional<int64_t> absent = {}, int64_t least = 1) const {
    const json* value = find({key});
    if (!value) {
      if (absent) return *absent;
      refuse("key {:?} is missing; give the config.json of a complete checkpoint", key);
    }
    if (!value->is_number_integer() || *value < least || *value > kMaxSize)
      refuse("{} must be a whole number from {} to {}, got {}", key, least, kMaxSize, shown(*value));
    return value->get<int64_t>();
  }

  bool is_null(const char* key) const {
    const auto it = object_.find(key);
    return it != object_.end() && it->is_null();
  }

  // A number in [0, 1e18).
  double number(const char* key, double absent) const {
    const json* value = find({key});
    if (!value) return absent;
    if (!value->is_number() || !(value->get<double>() >= 0 && value->get<double>() < 1e18))
      refuse("{} must be a number that is not negative, got {}", key, shown(*value));
    return value->get<double>();
  }

  bool boolean(const char* key, bool absent) const {
    const json* value = find({key});
    if (!value) return absent;
    if (!value->is_boolean()) refuse("{} must be true or false, got {}", key, shown(*value));
    return value->get<bool>();
  }

  std::string text(std::initializer_list<const char*> keys, const std::string& absent) const {
    const json* value = find(keys);
    if (!value) return absent;
    if (!value->is_string()) refuse("{} must be a string, got {}", *keys.begin(), shown(*value));
    return value->get<std::string>();
  }

  // Token ids: a number, or a list of them. Returns an empty list if the key is missing.
  std::vector<int64_t> tokens(const char* key) const {
    const json* value = find({key});
    std::vector<int64_t> ids;
    if (!value) return ids;
    for (const json& id : value->is_array() ? *value : json::array({*value})) {
      if (!id.is_number_integer() || id < 0 || id > kMaxSize)
        refuse("{} must be a token id from 0 to {}, or a list of them, got {}", key, kMaxSize, shown(*value));
      ids.push_back(id.get<int64_t>());
    }
    return ids;
  }

  // An object. Returns an empty one if the key is missing.
  json object(const char* key) const {
    const json* value = find({key});
    if (!value) return json::object();
    if (!value->is_object()) refuse("{} must be an object, got {}", key, shown(*value));
    return *value;
  }

  const std::string& label() const { return label_; }

  static std::string shown(const json& value) {
    return value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 80);
  }

 private:
  const json& object_;
  std::string label_;
};

json parse_object(std::string_view text, const std::string& label) {
  if (text.size() > kMaxConfigBytes)
    fail(ErrorKind::kData, "{}: {} bytes are too many for a config.json; give another file", label,
         text.size());
  std::set<std::string> keys;  // keys of the outermost object
  std::string twice;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth)
      fail(ErrorKind::kData, "{}: is nested deeper than {} levels; give a config.json", label, kMaxDepth);
    if (event == json::parse_event_t::key && depth == 1 && !keys.insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  json root;
  try {
    root = json::parse(text, watch);
  } catch (const json::parse_error& error) {
    fail(ErrorKind::kData, "{}: is not JSON at its byte {}; give a config.json", label, error.byte);
  } catch (const json::exception&) {
    fail(ErrorKind::kData, "{}: holds a number that no double can hold; give a config.json", label);
  }
  if (!root.is_object()) fail(ErrorKind::kData, "{}: is no JSON object; give a config.json", label);
  if (!twice.empty())
    fail(ErrorKind::kData, "{}: key {:?} is given twice; delete one", label, twice.substr(0, 200));
  return root;
}

void read_gpt2(const Reader& in, HfModelConfig& c) {
  c.layers = in.whole("n_layer");
  c.heads = in.whole("n_head");
  c.width = in.whole("n_embd");
  c.context = in.whole("n_positions", in.whole("n_ctx", 1024));
  c.ffn = in.whole("n_inner", 4 * c.width);
  if (c.width % c.heads != 0) in.refuse("n_embd {} must be a multiple of n_head {}", c.width, c.heads);
  c.kv_heads = c.heads;
  c.head_dim = c.width / c.heads;
  c.activation = in.text({"activation_function"}, "gelu_new");
  c.norm_eps = in.number("layer_norm_epsilon", 1e-5);
  c.dropout = in.number("resid_pdrop", 0.1);
  c.is_tied = in.boolean("tie_word_embeddings", true);
  c.has_attention_bias = c.has_mlp_bias = true;
  if (in.boolean("scale_attn_by_inverse_layer_idx", false) || !in.boolean("scale_attn_weights", true))
    in.refuse("attention must be scaled by 1/sqrt(head size) alone; Ingot has no other scale");
  if (in.boolean("add_cross_attention", false))
    in.refuse("add_cross_attention is set; Ingot has no cross attention");
}

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

// RopeObject holds the contents of one JSON object with the parameters of a RoPE; nullopt for what it does
// not define.
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

// REQUIRES: model_type and context have been read.
void read_rope(const Reader& in, HfModelConfig& c) {
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

constexpr int64_t kMaxLayers = 10'000;  // limit for models whose blocks differ

void check_layers(const Reader& in, const HfModelConfig& c) {
  if (c.layers > kMaxLayers) in.refuse("num_hidden_layers must be at most {}, got {}", kMaxLayers, c.layers);
}

// The blocks without a window, as newer versions list them. Returns nullopt if the list is missing.
std::optional<std::vector<int64_t>> listed_full_layers(const Reader& in, const HfModelConfig& c) {
  const json* types = in.find({"layer_types"});
  if (!types) return std::nullopt;
  if (!types->is_array() || types->size() < static_cast<size_t>(c.layers))
    in.refuse("layer_types must be a list of {} texts", c.layers);
  std::vector<int64_t> full;
  for (int64_t l = 0; l < c.layers; ++l) {
    const json& type = (*types)[static_cast<size_t>(l)];
    if (type != "full_attention" && type != "sliding_attention")
      in.refuse("layer_types must be full_attention or sliding_attention, got {}", Reader::shown(type));
    if (type == "full_attention") full.push_back(l);
  }
  return full;
}

// The blocks without a window where none are listed: the first ones or, in smollm3, those with rotary
// positions.
std::vector<int64_t> usual_full_layers(const Reader& in, const HfModelConfig& c) {
  const int64_t first = c.model_type == "smollm3" ? 0 : in.whole("max_window_layers", 28, 0);
  std::vector<int64_t> full;
  for (int64_t l = 0; l < c.layers; ++l) {
    const bool rotates = c.nope_every == 0 || (l + 1) % c.nope_every != 0;
    if (c.model_type == "smollm3" ? rotates : l < first) full.push_back(l);
  }
  return full;
}

// REQUIRES: nope_every has been read.
void read_window(const Reader& in, HfModelConfig& c) {
  if (c.model_type == "llama" || c.model_type == "olmo2") return;
  if (c.model_type == "mistral" || c.model_type == "ingot") {
    const bool is_absent = !in.find({"sliding_window"}) && !in.is_null("sliding_window");
    c.window = in.whole("sliding_window", is_absent && c.model_type == "mistral" ? 4096 : 0, 0);
    return;
  }
  const int64_t window = in.whole("sliding_window", 0, 0);
  const bool uses = in.boolean("use_sliding_window", false) && window > 0;
  const std::optional<std::vector<int64_t>> listed = listed_full_layers(in, c);
  if (!uses) {
    if (listed && std::ssize(*listed) < c.layers)
      in.refuse(
          "layer_types has sliding_attention, but use_sliding_window is false or sliding_window missing");
    return;
  }
  check_layers(in, c);
  std::vector<int64_t> full = listed ? *listed : usual_full_layers(in, c);
  if (std::ssize(full) == c.layers) return;
  c.window = window;
  c.full_layers = std::move(full);
}

// smollm3: 1 for every block that rotates, 0 for the others.
void read_no_rope_layers(const Reader& in, HfModelConfig& c) {
  if (c.model_type != "smollm3") return;
  check_layers(in, c);
  const int64_t interval = in.whole("no_rope_layer_interval", 4);
  const json* list = in.find({"no_rope_layers"});
  c.nope_every = interval <= c.layers ? interval : 0;
  if (!list) return;
  if (!list->is_array() || list->size() < static_cast<size_t>(c.layers))
    in.refuse("no_rope_layers must be a list of at least {} numbers", c.layers);
  c.nope_every = 0;
  for (int64_t l = 0; l < c.layers; ++l) {
    const json& rotates = (*list)[static_cast<size_t>(l)];
    if (rotates != 0 && rotates != 1)
      in.refuse("no_rope_layers must be 0 or 1, got {}", Reader::shown(rotates));
    if (rotates == 0 && c.nope_every == 0) c.nope_every = l + 1;
    if ((rotates == 0) != (c.nope_every > 0 && (l + 1) % c.nope_every == 0))
      in.refuse("no_rope_layers must be 0 in every n-th block, for one n; block {} is another", l);
  }
}

int64_t default_context(const std::string& type) {
  return type == "mistral" ? 131072 : type == "llama" || type == "olmo2" || type == "ingot" ? 2048 : 32768;
}

void read_llama(const Reader& in, HfModelConfig& c) {
  c.layers = in.whole("num_hidden_layers");
  c.heads = in.whole("num_attention_heads");
  c.width = in.whole("hidden_size");
  c.ffn = in.whole("intermediate_size");
  c.context = in.whole("max_position_embeddings", default_context(c.model_type));
  c.kv_heads = in.whole("num_key_value_heads", c.heads);
  if (c.heads % c.kv_heads != 0)
    in.refuse("num_attention_heads {} must be a multiple of num_key_value_heads {}", c.heads, c.kv_heads);
  const bool is_qwen3 = c.model_type == "qwen3";
  if (!in.find({"head_dim"}) && !is_qwen3 && c.width % c.heads != 0)
    in.refuse("hidden_size {} must be a multiple of num_attention_heads {} where head_dim is not given",
              c.width, c.heads);
  c.head_dim = in.whole("head_dim", is_qwen3 ? 128 : c.width / c.heads);
  c.activation = in.text({"hidden_act"}, "silu");
  c.norm_eps = in.number("rms_norm_eps", c.model_type == "olmo2" ? 1e-5 : 1e-6);
  c.dropout = in.number("attention_dropout", 0);
  c.is_tied = in.boolean("tie_word_embeddings", c.model_type == "smollm3");
  if (c.model_type != "mistral" && c.model_type != "qwen2") {
    c.has_attention_bias = in.boolean("attention_bias", false);
    c.has_mlp_bias = c.model_type != "qwen3" && c.model_type != "olmo2" && in.boolean("mlp_bias", false);
  }
  read_rope(in, c);
  read_no_rope_layers(in, c);
  read_window(in, c);
}

// Refuses keys of which Ingot does not know whether they change what the model computes.
void check_keys(const Reader& in, const json& root, const std::string& family) {
  for (const auto& [key, value] : root.items())
    if (!value.is_null() && !find_hf_config_key(family, key))
      in.refuse("key {:?} = {} is unknown in a {}; delete it if the model computes the same without it",
                key.substr(0, 80), Reader::shown(value), family);
  if (const json* heads = in.find({"pruned_heads"}); heads && !heads->empty())
    in.refuse("pruned_heads is set; Ingot has no heads of other sizes");
  if (in.find({"auto_map"}) && family != "ingot")
    in.refuse("auto_map names code that computes the model; delete it if the class of transformers does");
}

}  // namespace

HfModelConfig parse_hf_config(std::string_view text, const std::string& label) {
  const json root = parse_object(text, label);
  const Reader in(root, label);
  HfModelConfig c;
  c.model_type = in.text({"model_type"}, "");
  if (hf_architecture(c.model_type).empty())
    in.refuse("model_type {:?} is not supported; {} are", c.model_type.substr(0, 80), hf_families());
  check_keys(in, root, c.model_type);
  if (in.find({"quantization_config"}))
    in.refuse("the weights are quantised; give the checkpoint they were made from");
  c.vocab = in.whole("vocab_size");
  c.model_type == "gpt2" ? read_gpt2(in, c) : read_llama(in, c);
  c.init_std = in.number("initializer_range", 0.02);
  if (const auto ids = in.tokens("bos_token_id"); !ids.empty()) c.bos_id = ids.front();
  if (const auto ids = in.tokens("pad_token_id"); !ids.empty()) c.pad_id = ids.front();
  c.eos_ids = in.tokens("eos_token_id");
  c.dtype = in.text({"dtype", "torch_dtype"}, "float32");
  if (c.dtype != "float32" && c.dtype != "bfloat16" && c.dtype != "float16")
    in.refuse("dtype {:?} is not supported; float32, bfloat16 and float16 are", c.dtype.substr(0, 80));
  if (const json own = in.object("ingot"); !own.empty()) c.own_json = own.dump();
  return c;
}

}  // namespace ingot
