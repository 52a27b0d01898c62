#include "ingot/formats/hf_config.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "ingot/core/error.h"

namespace ingot {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr int kMaxDepth = 256;
constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();

std::string pretty(const ordered_json& value) {
  return value.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// ---- writing

void put_gpt2(ordered_json& out, const HfModelConfig& c) {
  out["n_layer"] = c.layers;
  out["n_head"] = c.heads;
  out["n_embd"] = c.width;
  out["n_inner"] = c.ffn;
  out["n_positions"] = c.context;
  out["n_ctx"] = c.context;
  out["activation_function"] = c.activation;
  out["layer_norm_epsilon"] = c.norm_eps;
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) out[key] = c.dropout;
  out["scale_attn_weights"] = true;
  out["scale_attn_by_inverse_layer_idx"] = false;
}

void put_llama(ordered_json& out, const HfModelConfig& c) {
  out["num_hidden_layers"] = c.layers;
  out["num_attention_heads"] = c.heads;
  out["num_key_value_heads"] = c.kv_heads;
  out["head_dim"] = c.head_dim;
  out["hidden_size"] = c.width;
  out["intermediate_size"] = c.ffn;
  out["max_position_embeddings"] = c.context;
  out["hidden_act"] = c.activation;
  out["rms_norm_eps"] = c.norm_eps;
  out["rope_theta"] = c.rope_theta;
  out["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", c.rope_theta}};
  out["rope_scaling"] = nullptr;
  out["attention_bias"] = c.has_attention_bias;
  out["mlp_bias"] = c.has_mlp_bias;
  out["attention_dropout"] = c.dropout;
}

void put_ids(ordered_json& out, const HfModelConfig& c) {
  out["bos_token_id"] = c.bos_id ? ordered_json(*c.bos_id) : ordered_json(nullptr);
  out["eos_token_id"] = c.eos_id ? ordered_json(*c.eos_id) : ordered_json(nullptr);
}

// ---- reading

// Reads a JSON object's values by key and type. Errors name the key, the expected and the found value.
class Reader {
 public:
  Reader(const json& object, const std::string& label) : object_(object), label_(label) {}

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

  // A token id: a number, or the first element of a list. Returns nullopt if the key is missing.
  std::optional<int64_t> token(const char* key) const {
    const json* value = find({key});
    if (value && value->is_array() && !value->empty()) value = &value->front();
    if (!value || (value->is_array() && value->empty())) return std::nullopt;
    if (!value->is_number_integer() || *value < 0 || *value > kMaxSize)
      refuse("{} must be a token id from 0 to {}, got {}", key, kMaxSize, shown(*value));
    return value->get<int64_t>();
  }

  // An object. Returns an empty one if the key is missing.
  json object(const char* key) const {
    const json* value = find({key});
    if (!value) return json::object();
    if (!value->is_object()) refuse("{} must be an object, got {}", key, shown(*value));
    return *value;
  }

  static std::string shown(const json& value) {
    return value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 80);
  }

 private:
  const json& object_;
  const std::string& label_;
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

void read_rope(const Reader& in, const std::string& label, HfModelConfig& c) {
  const json parameters = in.object("rope_parameters"), scaling = in.object("rope_scaling");
  c.rope_theta = Reader(parameters, label).number("rope_theta", in.number("rope_theta", 10000));
  for (const json* source : {&parameters, &scaling}) {
    const std::string type = Reader(*source, label).text({"rope_type", "type"}, "default");
    if (type != "default") in.refuse("rope_type {:?} is not supported; only \"default\" is", type);
  }
  if (in.number("partial_rotary_factor", 1) != 1)
    in.refuse("partial_rotary_factor must be 1; Ingot rotates whole heads");
}

void read_llama(const Reader& in, const std::string& label, HfModelConfig& c) {
  c.layers = in.whole("num_hidden_layers");
  c.heads = in.whole("num_attention_heads");
  c.width = in.whole("hidden_size");
  c.ffn = in.whole("intermediate_size");
  c.context = in.whole("max_position_embeddings", 2048);
  c.kv_heads = in.whole("num_key_value_heads", c.heads);
  if (c.heads % c.kv_heads != 0)
    in.refuse("num_attention_heads {} must be a multiple of num_key_value_heads {}", c.heads, c.kv_heads);
  if (!in.find({"head_dim"}) && c.width % c.heads != 0)
    in.refuse("hidden_size {} must be a multiple of num_attention_heads {} where head_dim is not given",
              c.width, c.heads);
  c.head_dim = in.whole("head_dim", c.width / c.heads);
  c.activation = in.text({"hidden_act"}, "silu");
  c.norm_eps = in.number("rms_norm_eps", 1e-6);
  c.dropout = in.number("attention_dropout", 0);
  c.is_tied = in.boolean("tie_word_embeddings", false);
  c.has_attention_bias = in.boolean("attention_bias", false);
  c.has_mlp_bias = in.boolean("mlp_bias", false);
  read_rope(in, label, c);
}

ordered_json tokens_of(const HfTokenizerConfig& config) {
  ordered_json out = ordered_json::object();
  if (!config.bos_token.empty()) out["bos_token"] = config.bos_token;
  if (!config.eos_token.empty()) out["eos_token"] = config.eos_token;
  if (!config.unk_token.empty()) out["unk_token"] = config.unk_token;
  return out;
}

}  // namespace

std::string hf_config_text(const HfModelConfig& c) {
  ordered_json out = ordered_json::object();
  const bool is_gpt2 = c.model_type == "gpt2";
  INGOT_CHECK(is_gpt2 || c.model_type == "llama" || c.model_type == "ingot",
              "hf_config_text: model_type must be gpt2, llama or ingot, got {}", c.model_type);
  out["architectures"] = {is_gpt2                   ? "GPT2LMHeadModel"
                          : c.model_type == "llama" ? "LlamaForCausalLM"
                                                    : "IngotForCausalLM"};
  out["model_type"] = c.model_type;
  out["vocab_size"] = c.vocab;
  is_gpt2 ? put_gpt2(out, c) : put_llama(out, c);
  out["initializer_range"] = c.init_std;
  out["tie_word_embeddings"] = c.is_tied;
  put_ids(out, c);
  out["torch_dtype"] = c.dtype;
  out["dtype"] = c.dtype;
  out["use_cache"] = true;
  if (!c.own_json.empty()) {
    const ordered_json own = ordered_json::parse(c.own_json, nullptr, /*allow_exceptions=*/false);
    INGOT_CHECK(own.is_object(), "hf_config_text: own_json must be a JSON object");
    out["ingot"] = own;
  }
  return pretty(out);
}

HfModelConfig parse_hf_config(std::string_view text, const std::string& label) {
  const json root = parse_object(text, label);
  const Reader in(root, label);
  HfModelConfig c;
  c.model_type = in.text({"model_type"}, "");
  if (c.model_type != "gpt2" && c.model_type != "llama" && c.model_type != "ingot")
    in.refuse("model_type {:?} is not supported; gpt2, llama and ingot are", c.model_type.substr(0, 80));
  if (in.find({"quantization_config"}))
    in.refuse("the weights are quantised; give the checkpoint they were made from");
  c.vocab = in.whole("vocab_size");
  c.model_type == "gpt2" ? read_gpt2(in, c) : read_llama(in, label, c);
  c.init_std = in.number("initializer_range", 0.02);
  c.bos_id = in.token("bos_token_id");
  c.eos_id = in.token("eos_token_id");
  c.dtype = in.text({"dtype", "torch_dtype"}, "float32");
  if (c.dtype != "float32" && c.dtype != "bfloat16" && c.dtype != "float16")
    in.refuse("dtype {:?} is not supported; float32, bfloat16 and float16 are", c.dtype.substr(0, 80));
  if (const json own = in.object("ingot"); !own.empty()) c.own_json = own.dump();
  return c;
}

std::string hf_generation_config_text(const HfModelConfig& config) {
  ordered_json out = {{"_from_model_config", true}};
  if (config.bos_id) out["bos_token_id"] = *config.bos_id;
  if (config.eos_id) out["eos_token_id"] = *config.eos_id;
  if (config.eos_id) out["pad_token_id"] = *config.eos_id;
  return pretty(out);
}

std::string hf_tokenizer_config_text(const HfTokenizerConfig& config) {
  ordered_json out = tokens_of(config);
  out["add_prefix_space"] = false;
  out["clean_up_tokenization_spaces"] = false;
  if (config.context > 0) out["model_max_length"] = config.context;
  out["tokenizer_class"] = "PreTrainedTokenizerFast";
  return pretty(out);
}

std::string hf_special_tokens_map_text(const HfTokenizerConfig& config) { return pretty(tokens_of(config)); }

}  // namespace ingot
