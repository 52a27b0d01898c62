#include "ingot/formats/hf_config.h"

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>

#include "ingot/core/error.h"
#include "ingot/formats/hf_config_keys.h"
#include "ingot/formats/hf_config_reader.h"

namespace ingot {
namespace {

using nlohmann::json;
using Reader = HfConfigReader;

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr int kMaxDepth = 256;

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

constexpr int64_t kMostLayers = 10'000;  // limit for models whose blocks differ

void check_layers(const Reader& in, const HfModelConfig& c) {
  if (c.layers > kMostLayers)
    in.refuse("num_hidden_layers must be at most {}, got {}", kMostLayers, c.layers);
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

// The blocks without a window where none are listed: the first ones or, in smollm3, those with rotary positions.
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
  read_hf_rope(in, c);
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
