// Writes config.json, generation_config.json and tokenizer_config.json.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/formats/hf_config.h"

namespace ingot {
namespace {

using nlohmann::ordered_json;

// Each model_type with its class in transformers; "ingot" brings its own.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kFamilies = {{
    {"gpt2", "GPT2LMHeadModel"},
    {"llama", "LlamaForCausalLM"},
    {"mistral", "MistralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"smollm3", "SmolLM3ForCausalLM"},
    {"olmo2", "Olmo2ForCausalLM"},
    {"ingot", "IngotForCausalLM"},
}};

std::string pretty_config(const ordered_json& value) {
  return value.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

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

ordered_json rope_json(const HfRope& rope) {
  ordered_json out = {{"rope_type", rope.type}};
  if (rope.type == "default") return out;
  out["factor"] = rope.factor;
  if (rope.type == "linear") return out;
  out["original_max_position_embeddings"] = rope.original_context;
  if (rope.type == "yarn") {
    out["beta_fast"] = rope.beta_fast;
    out["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor > 0) out["attention_factor"] = rope.attention_factor;
    return out;
  }
  out["low_freq_factor"] = rope.low_freq_factor;
  out["high_freq_factor"] = rope.high_freq_factor;
  return out;
}

// The kind of attention of every block.
ordered_json layer_types(const HfModelConfig& c) {
  ordered_json types = ordered_json::array();
  for (int64_t l = 0; l < c.layers; ++l) {
    const bool is_full = c.window == 0 || std::ranges::binary_search(c.full_layers, l);
    types.push_back(is_full ? "full_attention" : "sliding_attention");
  }
  return types;
}

// The keys that only some of LLaMA's relatives have.
void put_relative(ordered_json& out, const HfModelConfig& c) {
  const bool is_qwen = c.model_type == "qwen2" || c.model_type == "qwen3";
  const ordered_json window = c.window > 0 ? ordered_json(c.window) : ordered_json(nullptr);
  if (c.model_type == "mistral" || c.model_type == "ingot") out["sliding_window"] = window;
  if (is_qwen) {
    out["use_sliding_window"] = c.window > 0;
    out["sliding_window"] = window;
    // Versions without layer_types read this: the first blocks have no window.
    const int64_t full = std::ssize(c.full_layers);
    const bool are_first = full == 0 || c.full_layers.back() == full - 1;
    out["max_window_layers"] = c.window > 0 && are_first ? full : c.layers;
  }
  if ((is_qwen || c.model_type == "smollm3") && c.window > 0) out["layer_types"] = layer_types(c);
  if (c.model_type != "smollm3") return;
  ordered_json rotary = ordered_json::array();
  for (int64_t l = 0; l < c.layers; ++l)
    rotary.push_back(c.nope_every > 0 && (l + 1) % c.nope_every == 0 ? 0 : 1);
  out["no_rope_layers"] = rotary;
  out["no_rope_layer_interval"] = c.nope_every > 0 ? c.nope_every : c.layers + 1;
  out["use_sliding_window"] = c.window > 0;
  out["sliding_window"] = window;
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
  out["rope_parameters"] = rope_json(c.rope);
  out["rope_parameters"]["rope_theta"] = c.rope_theta;
  out["rope_scaling"] = c.rope.type == "default" ? ordered_json(nullptr) : rope_json(c.rope);
  out["attention_bias"] = c.has_attention_bias;
  out["mlp_bias"] = c.has_mlp_bias;
  out["attention_dropout"] = c.dropout;
  put_relative(out, c);
}

ordered_json eos_json(const HfModelConfig& c) {
  if (c.eos_ids.empty()) return nullptr;
  return c.eos_ids.size() == 1 ? ordered_json(c.eos_ids.front()) : ordered_json(c.eos_ids);
}

void put_ids(ordered_json& out, const HfModelConfig& c) {
  const auto put = [&](const char* key, const std::optional<int64_t>& id) {
    out[key] = id ? ordered_json(*id) : ordered_json(nullptr);
  };
  put("pad_token_id", c.pad_id);
  put("bos_token_id", c.bos_id);
  out["eos_token_id"] = eos_json(c);
}

}  // namespace

std::string_view hf_architecture(std::string_view type) {
  for (const auto& [name, architecture] : kFamilies)
    if (name == type) return architecture;
  return {};
}

std::string hf_families() {
  std::string names;
  for (const auto& [name, architecture] : kFamilies) {
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

std::string hf_config_text(const HfModelConfig& c) {
  ordered_json out = ordered_json::object();
  const bool is_gpt2 = c.model_type == "gpt2";
  const std::string_view architecture = hf_architecture(c.model_type);
  INGOT_CHECK(!architecture.empty(), "hf_config_text: model_type must be one of {}, got {}", hf_families(),
              c.model_type);
  out["architectures"] = {architecture};
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
    if (c.model_type == "ingot")  // modeling_ingot.py is in the same folder
      out["auto_map"] = {{"AutoConfig", "modeling_ingot.IngotConfig"},
                         {"AutoModelForCausalLM", "modeling_ingot.IngotForCausalLM"}};
  }
  return pretty_config(out);
}

std::string hf_generation_config_text(const HfModelConfig& config) {
  ordered_json out = {{"_from_model_config", true}};
  if (config.bos_id) out["bos_token_id"] = *config.bos_id;
  if (!config.eos_ids.empty()) out["eos_token_id"] = eos_json(config);
  if (config.pad_id || !config.eos_ids.empty())
    out["pad_token_id"] = config.pad_id ? *config.pad_id : config.eos_ids.front();
  return pretty_config(out);
}

std::string hf_tokenizer_config_text(const HfTokenizerConfig& config) {
  ordered_json out = ordered_json::object();
  for (const auto& [name, token] : config.tokens)
    if (!token.empty()) out[name] = token;
  out["add_prefix_space"] = false;
  out["clean_up_tokenization_spaces"] = false;
  if (config.context > 0) out["model_max_length"] = config.context;
  out["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (!config.chat_template_json.empty())
    out["chat_template"] = ordered_json::parse(config.chat_template_json);
  return pretty_config(out);
}

}  // namespace ingot
