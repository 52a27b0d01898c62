// Reads and writes the small JSON files of a Hugging Face checkpoint as plain structs and text: config.json,
// generation_config.json and tokenizer_config.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// HfRope describes the scaling of the rotary frequencies ("rope_parameters", or "rope_scaling" in older
// files).
struct HfRope {
  std::string type = "default";                      // default | linear | llama3 | yarn
  double factor = 1;                                 // linear, llama3, yarn
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  double attention_factor = 0;                       // yarn; 0: 0.1 ln(factor) + 1
  int64_t original_context = 0;                      // llama3, yarn

  bool operator==(const HfRope&) const = default;
};

// config.json of the architectures that Ingot supports: "gpt2", "llama", "mistral" (a sliding window),
// "qwen2" (q, k and v have biases), "qwen3" (QK-norm with gains), "smollm3" (blocks without rotary
// positions), "olmo2" (norms after attention and MLP, QK-norm over all heads together), and "ingot" for
// models that no transformers class computes (ReLU^2, weightless norms, capped logits). "ingot" has LLaMA's
// keys.
struct HfModelConfig {
  std::string model_type = "llama";  // gpt2 | llama | mistral | qwen2 | qwen3 | smollm3 | olmo2 | ingot
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // gpt2: equals heads
  int64_t head_dim = 0;  // gpt2: equals width / heads
  int64_t width = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;    // rows of the stored table, without padding
  int64_t context = 0;  // context length in tokens
  double norm_eps = 1e-5;
  double rope_theta = 10000;  // gpt2: unused
  HfRope rope = {};
  int64_t window = 0;                     // tokens that a token attends to, itself included; 0: all before it
  std::vector<int64_t> full_layers = {};  // qwen2, qwen3, smollm3: blocks without the window, ascending
  int64_t nope_every = 0;                 // smollm3: every n-th block has no rotary positions; 0: none
  std::string activation = {};            // transformers' names: gelu_new (tanh), gelu, silu, relu2
  bool is_tied = true;                    // the head uses the embedding table; the file has no lm_head.weight
  bool has_attention_bias = false;        // gpt2 always has biases: both are true
  bool has_mlp_bias = false;
  double dropout = 0;
  double init_std = 0.02;
  std::optional<int64_t> bos_id = {}, pad_id = {};
  std::vector<int64_t> eos_ids = {};  // each of them ends a text
  std::string dtype = "float32";      // dtype of the stored weights: float32 | bfloat16 | float16
  std::string own_json = {};          // a JSON object stored under the key "ingot"; empty if there is none

  bool operator==(const HfModelConfig&) const = default;
};

// Returns the class of transformers for a model_type that Ingot supports; empty for any other.
std::string_view hf_architecture(std::string_view model_type);
std::string hf_families();  // "gpt2, llama, ..."

// Returns config.json with both the old and the new spelling of what transformers 5 renamed (torch_dtype
// and dtype, rope_theta and rope_parameters). kInternal error if model_type is unknown or own_json is not
// a JSON object.
std::string hf_config_text(const HfModelConfig& config);

// The inverse; it reads the spellings of every transformers version. Absent keys get transformers'
// defaults. `label` stands for the path in errors. kData error that names the key, the expected and the
// found value if the text is not a JSON object, a top-level key is given twice, a size is missing or
// impossible, or model_type is another one; also for what Ingot does not compute (other kinds of scaled RoPE,
// partial rotary embeddings, quantised weights, cross attention, layer-dependent
// attention scale), for a key that is unknown in the family (hf_config_keys.h), and for parameters of RoPE
// that contradict each other.
HfModelConfig parse_hf_config(std::string_view text, const std::string& label);

// Content of tokenizer_config.json. Empty tokens are not written.
struct HfTokenizerConfig {
  std::map<std::string, std::string> tokens = {};  // by "eos_token", "bos_token", ...
  int64_t context = 0;                             // model_max_length
  std::string chat_template_json = {};             // a string or a list, as JSON; empty if there is none
};

std::string hf_generation_config_text(const HfModelConfig& config);
std::string hf_tokenizer_config_text(const HfTokenizerConfig& config);

}  // namespace ingot
