#include "ingot/checkpoint/hf_model.h"

#include "ingot/core/error.h"

namespace ingot {

HfModelConfig to_hf_config(const ModelConfig& c, const Tokenizer& tokenizer) {
  const bool is_plain = !c.has_qk_norm && c.cap.kind == CapKind::kNone;
  const bool is_gpt2 = is_plain && c.norm == NormKind::kLayerNorm && c.positions == PositionKind::kLearned &&
                       c.mlp != MlpKind::kSwiglu && c.mlp != MlpKind::kRelu2 && c.kv_heads == c.heads &&
                       c.heads * c.head_dim == c.width;
  const bool is_llama = is_plain && c.norm == NormKind::kRmsNorm && c.positions == PositionKind::kRope &&
                        c.mlp == MlpKind::kSwiglu;
  HfModelConfig hf;
  hf.model_type = is_gpt2 ? "gpt2" : is_llama ? "llama" : "ingot";
  hf.layers = c.layers;
  hf.heads = c.heads;
  hf.kv_heads = c.kv_heads;
  hf.head_dim = c.head_dim;
  hf.width = c.width;
  hf.ffn = c.ffn;
  hf.vocab = c.vocab;
  hf.context = c.context;
  hf.norm_eps = c.norm_eps;
  hf.rope_theta = c.rope_theta;
  hf.activation = c.mlp == MlpKind::kSwiglu      ? "silu"
                  : c.mlp == MlpKind::kRelu2     ? "relu2"
                  : c.mlp == MlpKind::kGeluExact ? "gelu"
                                                 : "gelu_new";
  hf.is_tied = c.is_tied;
  hf.has_attention_bias = is_gpt2 || c.has_bias;
  hf.has_mlp_bias = is_gpt2 || c.has_bias;
  hf.dropout = c.dropout;
  hf.init_std = c.init_std;
  if (tokenizer.end_of_text()) hf.bos_id = hf.eos_id = *tokenizer.end_of_text();
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
  c.layers = hf.layers;
  c.heads = hf.heads;
  c.kv_heads = hf.kv_heads;
  c.head_dim = hf.head_dim;
  c.width = hf.width;
  c.ffn = hf.ffn;
  c.vocab = hf.vocab;
  c.context = hf.context;
  c.norm = is_gpt2 ? NormKind::kLayerNorm : NormKind::kRmsNorm;
  c.positions = is_gpt2 ? PositionKind::kLearned : PositionKind::kRope;
  c.mlp = !is_gpt2 ? MlpKind::kSwiglu : hf.activation == "gelu" ? MlpKind::kGeluExact : MlpKind::kGeluTanh;
  c.has_bias = hf.has_attention_bias;
  c.is_tied = hf.is_tied;
  c.norm_eps = hf.norm_eps;
  c.rope_theta = hf.rope_theta;
  c.init_std = hf.init_std;
  return c;
}

}  // namespace ingot
