#include "ingot/formats/hf_config_keys.h"

#include <algorithm>
#include <array>

namespace ingot {
namespace {

constexpr std::string_view kLlamas = "llama mistral qwen2 qwen3 smollm3 olmo2 ingot";

constexpr std::array<HfConfigKey, 22> kKeys = {{
    {"*",
     "model_type vocab_size tie_word_embeddings initializer_range bos_token_id eos_token_id pad_token_id "
     "dtype "
     "torch_dtype "
     "quantization_config pruned_heads auto_map ingot",
     ""},
    {"gpt2",
     "n_layer n_head n_embd n_positions n_ctx n_inner activation_function layer_norm_epsilon resid_pdrop "
     "scale_attn_weights scale_attn_by_inverse_layer_idx add_cross_attention",
     ""},
    {kLlamas,
     "num_hidden_layers num_attention_heads num_key_value_heads head_dim hidden_size intermediate_size "
     "max_position_embeddings hidden_act rms_norm_eps attention_dropout rope_theta rope_scaling "
     "rope_parameters "
     "partial_rotary_factor use_mrope rope_interleaved",
     ""},
    {"llama qwen3 smollm3 olmo2 ingot", "attention_bias", ""},
    {"llama smollm3 ingot", "mlp_bias", ""},
    {"mistral qwen2 qwen3 smollm3 ingot", "sliding_window", ""},
    {"qwen2 qwen3 smollm3", "use_sliding_window layer_types", ""},
    {"qwen2 qwen3", "max_window_layers", ""},
    {"smollm3", "no_rope_layers no_rope_layer_interval", ""},
    {"mistral qwen2", "attention_bias", "the family's class does not read it"},
    {"mistral qwen2 qwen3 olmo2", "mlp_bias", "the family's class does not read it"},
    {"smollm3", "max_window_layers", "the family's class does not read it"},
    {"gpt2", "attn_pdrop embd_pdrop", "a dropout of training; resid_pdrop is taken for all"},
    {"gpt2", "reorder_and_upcast_attn", "it changes roundings in f16 alone"},
    {"gpt2",
     "classifier_dropout hidden_dropout num_labels summary_activation summary_first_dropout "
     "summary_last_dropout summary_proj_to_labels summary_type summary_use_proj",
     "it belongs to the heads of classifiers"},
    {kLlamas, "pretraining_tp", "it divides products, whose sum is the same"},
    {"llama", "max_sequence_length", "the family's class does not read it"},
    {"*",
     "sep_token_id decoder_start_token_id tokenizer_class prefix model_max_length "
     "forced_bos_token_id forced_eos_token_id",
     "it belongs to the tokenizer or to generation"},
    {"*",
     "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature "
     "top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size "
     "encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores return_dict_in_generate "
     "remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens",
     "it belongs to generation"},
    {"*",
     "architectures transformers_version name_or_path finetuning_task id2label label2id problem_type "
     "task_specific_params is_llama_config transformers.js_config unsloth_version unsloth_fixed model_name",
     "it describes the file or a task"},
    {"*",
     "use_cache return_dict output_attentions output_hidden_states torchscript use_bfloat16 tf_legacy_loss "
     "gradient_checkpointing attn_implementation chunk_size_feed_forward keys_to_ignore_at_inference",
     "it says how transformers computes, not what"},
    {"*", "is_decoder is_encoder_decoder tie_encoder_decoder cross_attention_hidden_size",
     "the families are decoders alone"},
}};

constexpr HfConfigKey kPrivate = {"*", "_", "transformers writes it for itself"};

// Returns true if `words`, a list separated by spaces, contains `word`.
bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::string_view first = words.substr(0, words.find(' '));
    if (first == word) return true;
    words.remove_prefix(std::min(words.size(), first.size() + 1));
  }
  return false;
}

}  // namespace

const HfConfigKey* find_hf_config_key(std::string_view family, std::string_view key) {
  if (key.starts_with('_')) return &kPrivate;
  const auto found = std::ranges::find_if(kKeys, [&](const HfConfigKey& row) {
    return (row.families == "*" || has_word(row.families, family)) && has_word(row.keys, key);
  });
  return found == kKeys.end() ? nullptr : &*found;
}

}  // namespace ingot
