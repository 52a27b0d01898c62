#include "ingot/checkpoint/hf_model.h"

#include <string_view>

#include "ingot/core/error.h"

namespace ingot {
namespace {

bool is_gpt2(const ModelConfig& c) {
  return c.norm == NormKind::kLayerNorm && c.positions == PositionKind::kLearned &&
         c.mlp != Activation::kSwiglu && c.mlp != Activation::kRelu2 && c.kv_heads == c.heads &&
         c.heads * c.head_dim == c.width && !c.has_qk_norm && c.window == 0 &&
         c.norm_place == NormPlace::kBefore;
}

// Returns the relative of LLaMA whose transformers class computes the model; "ingot" if there is none.
const char* llama_relative(const ModelConfig& c) {
  if (c.norm != NormKind::kRmsNorm || c.positions != PositionKind::kRope || c.mlp != Activation::kSwiglu)
    return "ingot";
  const bool has_window = c.window > 0, has_qkv_bias = c.has_qkv_bias && !c.has_bias,
             has_nope = c.nope_every > 0;
  if (c.norm_place == NormPlace::kAfter || c.qk_norm_over == QkNormOver::kWidth) {
    const bool is_olmo2 = c.norm_place == NormPlace::kAfter && c.qk_norm_over == QkNormOver::kWidth;
    return is_olmo2 && !has_window && !has_nope && !c.has_bias_of_qkv() ? "olmo2" : "ingot";
  }
  const int extras =
      static_cast<int>(c.has_qk_norm) + static_cast<int>(has_qkv_bias) + static_cast<int>(has_nope);
  if (extras > 1) return "ingot";
  // A LLaMA with windows in some blocks is a SmolLM3 all of whose blocks rotate.
  if (has_nope || (!c.full_layers.empty() && extras == 0)) return "smollm3";
  if (has_qkv_bias) return "qwen2";
  if (c.has_qk_norm) return c.has_bias ? "ingot" : "qwen3";
  // LlamaConfig refuses a width that the number of heads does not divide; MistralConfig does not.
  if (!has_window && c.width % c.heads == 0) return "llama";
  return c.has_bias ? "ingot" : "mistral";
}

const char* activation_name(Activation kind) {
  switch (kind) {
    case Activation::kSwiglu:
      return "silu";
    case Activation::kRelu2:
      return "relu2";
    case Activation::kGeluExact:
      return "gelu";
    case Activation::kGeluTanh:
      break;
  }
  return "gelu_new";
}

HfRope to_hf_rope(const RopeScaling& c) {
  switch (c.kind) {
    case RopeScaling::Kind::kLinear:
      return {.type = "linear", .factor = c.factor};
    case RopeScaling::Kind::kLlama3:
      return {.type = "llama3",
              .factor = c.factor,
              .low_freq_factor = c.low_freq_factor,
              .high_freq_factor = c.high_freq_factor,
              .original_context = c.original_context};
    case RopeScaling::Kind::kYarn:
      return {.type = "yarn",
              .factor = c.factor,
              .beta_fast = c.beta_fast,
              .beta_slow = c.beta_slow,
              .attention_factor = c.attention_factor,
              .original_context = c.original_context};
    case RopeScaling::Kind::kNone:
      break;
  }
  return {};
}

RopeScaling from_hf_rope(const HfRope& rope) {
  RopeScaling c;
  if (rope.type == "default") return c;
  c.factor = rope.factor;
  c.kind = rope.type == "linear" ? RopeScaling::Kind::kLinear
           : rope.type == "yarn" ? RopeScaling::Kind::kYarn
                                 : RopeScaling::Kind::kLlama3;
  if (c.kind == RopeScaling::Kind::kLinear) return c;
  c.low_freq_factor = rope.low_freq_factor;
  c.high_freq_factor = rope.high_freq_factor;
  c.beta_fast = rope.beta_fast;
  c.beta_slow = rope.beta_slow;
  c.attention_factor = rope.attention_factor;
  c.original_context = rope.original_context;
  return c;
}

// The MLP of a config's activation. kData error if Ingot has no such MLP.
Activation mlp_of(const HfModelConfig& hf, bool is_gpt2) {
  const std::string& name = hf.activation;
  if (!is_gpt2) {
    if (name == "silu" || name == "swish") return Activation::kSwiglu;
    fail(ErrorKind::kData, "config.json: hidden_act {:?} is not supported; silu is", name.substr(0, 80));
  }
  if (name == "gelu") return Activation::kGeluExact;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  fail(ErrorKind::kData, "config.json: activation_function {:?} is not supported; gelu_new and gelu are",
       name.substr(0, 80));
}

// Copies what has the same name and meaning in both kinds of configuration.
template <typename To, typename From>
void copy_equal_fields(To& to, const From& from) {
  to.layers = from.layers;
  to.heads = from.heads;
  to.kv_heads = from.kv_heads;
  to.head_dim = from.head_dim;
  to.width = from.width;
  to.ffn = from.ffn;
  to.vocab = from.vocab;
  to.context = from.context;
  to.norm_eps = from.norm_eps;
  to.rope_theta = from.rope_theta;
  to.window = from.window;
  to.full_layers = from.full_layers;
  to.nope_every = from.nope_every;
  to.is_tied = from.is_tied;
  to.init_std = from.init_std;
}

}  // namespace

const char* hf_family(const ModelConfig& c) {
  if (c.cap.kind != LogitCap::kNone || c.has_own_parts()) return "ingot";
  return is_gpt2(c) ? "gpt2" : llama_relative(c);
}

HfModelConfig to_hf_config(const ModelConfig& c, const Tokenizer& tokenizer) {
  HfModelConfig hf;
  hf.model_type = hf_family(c);
  copy_equal_fields(hf, c);
  hf.rope = to_hf_rope(c.rope_scaling);
  hf.activation = activation_name(c.mlp);
  hf.has_attention_bias = hf.model_type == "gpt2" || c.has_bias;
  hf.has_mlp_bias = hf.model_type == "gpt2" || c.has_bias;
  hf.dropout = c.dropout;
  const TokenizerSideFiles& side = tokenizer.side_files();
  hf.bos_id = side.bos_id ? side.bos_id : tokenizer.end_of_text();
  hf.pad_id = side.pad_id;
  for (const TokenId id : tokenizer.eos_ids()) hf.eos_ids.push_back(id);
  return hf;
}

ModelConfig from_hf_config(const HfModelConfig& hf) {
  if (hf.model_type == "ingot")
    fail(ErrorKind::kData, "config.json: model_type \"ingot\" needs the config.toml that was saved with it");
  const bool is_gpt2 = hf.model_type == "gpt2";
  if (hf.has_attention_bias != hf.has_mlp_bias)
    fail(ErrorKind::kData,
         "config.json: attention_bias and mlp_bias must be equal, one alone is not supported");
  ModelConfig c;
  copy_equal_fields(c, hf);
  c.norm = is_gpt2 ? NormKind::kLayerNorm : NormKind::kRmsNorm;
  c.positions = is_gpt2 ? PositionKind::kLearned : PositionKind::kRope;
  c.mlp = mlp_of(hf, is_gpt2);
  c.has_bias = hf.has_attention_bias;
  c.has_qkv_bias = hf.model_type == "qwen2";
  const bool is_olmo2 = hf.model_type == "olmo2";
  c.has_qk_norm = c.has_qk_norm_gain = is_olmo2 || hf.model_type == "qwen3";
  if (is_olmo2) c.qk_norm_over = QkNormOver::kWidth;
  if (is_olmo2) c.norm_place = NormPlace::kAfter;
  c.rope_scaling = from_hf_rope(hf.rope);
  return c;
}

}  // namespace ingot
