#include "ingot/config/known_names.h"

#include <algorithm>

#include "ingot/config/nearest.h"

namespace ingot {
namespace {

// `ours` and `others` are lists of names separated by one space, best first; `others` are in lower case.
struct KnownNames {
  std::string_view ours, others;
};

constexpr KnownNames kKeys[] = {
    {"model.layers", "n_layer n_layers num_layers num_hidden_layers n_blocks num_blocks depth"},
    {"model.heads", "n_head n_heads num_heads num_attention_heads attention_heads"},
    {"model.kv_heads", "n_kv_head n_kv_heads num_kv_heads num_key_value_heads num_query_groups"},
    {"model.head_dim", "d_head head_size kv_channels"},
    {"model.width",
     "n_embd n_embed d_model hidden_size hidden_dim dim model_dim embed_dim embedding_dim embedding_size"},
    {"model.ffn", "intermediate_size ffn_hidden_size d_ff ffn_dim n_inner mlp_hidden_size"},
    {"model.context",
     "block_size seq_len seq_length sequence_length context_length context_size max_seq_len max_seq_length "
     "max_sequence_length max_position_embeddings n_ctx n_positions ctx_len"},
    {"model.vocab data.tokenizer_vocab", "vocab_size n_vocab padded_vocab_size"},
    {"model.vocab_multiple", "make_vocab_size_divisible_by pad_vocab_size_multiple"},
    {"model.norm", "norm_type normalization norm_class"},
    {"model.norm_eps", "rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_epsilon"},
    {"model.positions", "position_embedding_type pos_emb position_encoding"},
    {"model.rope_theta", "rope_base rotary_base rope_freq_base"},
    {"model.rope_scaling", "rope_type rope_parameters"},
    {"model.rope_original_context", "original_max_position_embeddings"},
    {"model.rope_beta_fast", "beta_fast yarn_beta_fast"},
    {"model.rope_beta_slow", "beta_slow yarn_beta_slow"},
    {"model.rope_attention_factor", "attention_factor yarn_attn_factor"},
    {"model.rope_dims", "rotary_pct rotary_dim rotary_percent partial_rotary_factor"},
    {"model.parallel_residual", "use_parallel_residual parallel_block parallel_attn"},
    {"model.nope_every", "no_rope_layer_interval no_rope_layers"},
    {"model.window", "sliding_window window_size sliding_window_size"},
    {"model.full_layers", "layer_types max_window_layers"},
    {"model.mlp", "hidden_act activation activation_function act_fn"},
    {"model.bias", "use_bias add_bias_linear attention_bias mlp_bias"},
    {"model.qkv_bias", "add_qkv_bias"},
    {"model.qk_norm", "qk_layernorm use_qk_norm"},
    {"model.tied",
     "tie_word_embeddings tie_embeddings weight_tying tie_weights untie_embeddings_and_output_weights"},
    {"model.dropout",
     "dropout_p attn_pdrop resid_pdrop embd_pdrop attention_dropout hidden_dropout attn_dropout"},
    {"model.cap", "softcap logit_softcap logits_soft_cap final_logit_softcapping"},
    {"model.init_std", "initializer_range init_method_std"},
    {"lora.rank", "lora_r lora_rank"},
    {"lora.alpha", "lora_alpha"},
    {"lora.targets", "target_modules lora_target_modules"},
    {"data.train", "dataset dataset_path data_path data_dir train_data train_file train_files train_bin"},
    {"data.val", "val_data val_file valid_data validation_data validation_file eval_data valid_file val_bin"},
    {"data.val_fraction", "val_split validation_split val_ratio"},
    {"data.text_field", "text_column text_key json_key"},
    {"data.tokenizer", "tokenizer_name tokenizer_path tokenizer_file tokenizer_model tokenizer_type"},
    {"data.order", "shuffle shuffle_data"},
    {"data.loss_on", "train_on_inputs completion_only_loss assistant_only_loss loss_mask"},
    {"train.steps",
     "max_iters max_steps num_steps train_steps training_steps total_steps n_steps num_iterations "
     "max_iterations train_iters num_train_steps iterations iters"},
    {"train.max_tokens train.steps", "total_tokens train_tokens"},
    {"train.epochs", "num_epochs num_train_epochs max_epochs n_epochs epoch"},
    {"train.max_time", "time_limit max_minutes max_hours time_budget"},
    {"train.batch_size",
     "per_device_train_batch_size micro_batch_size device_batch_size local_batch_size train_batch_size bs "
     "mbs"},
    {"train.batch_size train.grad_accum", "global_batch_size total_batch_size gbs"},
    {"train.batch_ramp", "rampup_batch_size batch_size_rampup"},
    {"train.grad_accum",
     "gradient_accumulation_steps grad_accum_steps gradient_accumulation accumulate_grad_batches "
     "accumulation_steps grad_acc_steps"},
    {"train.seed", "random_seed manual_seed seed_offset"},
    {"train.log_every", "log_interval logging_steps log_freq log_every_n_steps print_every"},
    {"train.threads", "num_threads n_threads"},
    {"data.workers", "num_workers dataloader_num_workers num_data_workers n_workers"},
    {"data.prefetch", "prefetch_factor dataloader_prefetch_factor prefetch_batches num_prefetch_batches"},
    {"train.device", "accelerator backend use_cuda"},
    {"optimizer.kind", "optimizer optim optimizer_name optimizer_type optimizer.type optimizer.name"},
    {"optimizer.lr", "learning_rate max_lr base_lr peak_lr"},
    {"optimizer.beta1 optimizer.beta2", "betas adam_betas"},
    {"optimizer.beta1", "adam_beta1 beta_1"},
    {"optimizer.beta2", "adam_beta2 beta_2"},
    {"optimizer.eps", "adam_epsilon adam_eps epsilon"},
    {"optimizer.weight_decay", "wd l2 decay"},
    {"optimizer.grad_clip",
     "max_grad_norm gradient_clipping clip_grad clip_grad_norm gradient_clip_val max_norm"},
    {"optimizer.ema", "ema_decay use_ema"},
    {"schedule.kind",
     "lr_scheduler lr_scheduler_type lr_schedule scheduler lr_decay_style decay_lr "
     "schedule.type schedule.name"},
    {"schedule.warmup_steps",
     "warmup_iters warmup num_warmup_steps lr_warmup_steps lr_warmup_iters warmup_iterations warmup_ratio"},
    {"schedule.decay_steps", "lr_decay_iters lr_decay_steps"},
    {"schedule.floor", "min_lr min_lr_ratio min_lr_rate end_lr learning_rate_decay_frac"},
    {"precision.compute", "dtype torch_dtype mixed_precision precision amp fp16 bf16 half"},
    {"precision.tf32", "allow_tf32 use_tf32"},
    {"activations.policy",
     "gradient_checkpointing activation_checkpointing activation_checkpoint use_activation_checkpointing "
     "recompute recompute_granularity"},
    {"eval.every",
     "eval_interval eval_steps evaluation_steps eval_freq val_interval val_check_interval val_loss_every"},
    {"eval.patience", "early_stopping early_stopping_patience early_stop"},
    {"eval.best_by", "metric_for_best_model monitor"},
    {"eval.max_tokens", "eval_iters val_steps val_tokens limit_val_batches val_max_steps"},
    {"checkpoint.every",
     "save_interval save_steps save_every checkpoint_interval checkpoint_every ckpt_interval save_freq"},
    {"checkpoint.keep", "save_total_limit keep_last max_to_keep keep_latest_k"},
    {"checkpoint.best", "load_best_model_at_end save_best save_top_k keep_best always_save_checkpoint"},
    {"sample.tokens", "max_new_tokens"},
    {"sample.count", "num_samples n_samples"},
    {"sample.prompts", "prompt prompts_file"},
    {"sample.every", "sample_interval sample_freq sample_steps"},
    {"parallel.dp", "data_parallel data_parallel_size data_parallel_replicate_degree ddp dp_size"},
    {"parallel.fsdp", "zero zero_stage fsdp_size data_parallel_shard_degree sharding"},
    {"parallel.tp",
     "tensor_parallel tensor_parallel_size tensor_model_parallel_size tensor_parallel_degree tp_size"},
    {"parallel.pp",
     "pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size pipeline_parallel_degree "
     "pp_size"},
    {"parallel.bucket_mb", "bucket_cap_mb ddp_bucket_size"},
    // Options of `ingot train`.
    {"--out", "out_dir output_dir output save_dir run_dir dump_folder"},
    {"--resume", "resume resume_from_checkpoint load_checkpoint"},
};

constexpr KnownNames kSections[] = {
    {"model", "network arch architecture model_args transformer"},
    {"data", "dataset datasets tokenizer corpus"},
    {"train", "training trainer run training_args"},
    {"optimizer", "optim optimiser adamw adam"},
    {"schedule", "lr_scheduler scheduler lr_schedule lr"},
    {"precision", "mixed_precision amp dtype"},
    {"activations", "activation_checkpoint activation_checkpointing recompute"},
    {"eval", "evaluation validation val"},
    {"checkpoint", "checkpoints checkpointing ckpt save"},
    {"sample", "sampling samples generation generate"},
    {"parallel", "distributed parallelism mesh parallel_dims"},
};

// One row may serve several keys: suggested_values() offers only the values that the key accepts.
constexpr KnownNames kValues[] = {
    {"cuda", "gpu gpus nvidia cuda:0 cuda0"},
    {"f32", "float32 fp32 float single 32 32-true no torch.float32"},
    {"bf16", "bfloat16 bf16-mixed bf16-true torch.bfloat16"},
    {"f16", "float16 fp16 half 16 16-mixed 16-true torch.float16"},
    {"fp8", "float8 e4m3"},
    {"adamw", "adam_w adamw_torch adamw_torch_fused fusedadam fused_adamw adam_weight_decay"},
    {"adamw8bit", "adamw_8bit adam8bit adamw_bnb_8bit paged_adamw_8bit bnb_adamw 8bit_adamw"},
    {"sgd", "gd vanilla"},
    {"momentum", "nesterov sgd_momentum sgdm nag"},
    {"cosine", "cosine_with_warmup warmup_cosine cosine_decay cosine_annealing cosineannealinglr"},
    {"linear", "linear_decay linear_with_warmup warmup_linear"},
    {"constant", "constant_with_warmup fixed none"},
    {"wsd", "trapezoid trapezoidal warmup_stable_decay warmup-stable-decay"},
    {"layernorm", "layer_norm layer nn.layernorm ln"},
    {"rmsnorm", "rms_norm rms t5norm"},
    {"rope", "rotary rotary_embedding rotary_embeddings"},
    {"learned", "absolute learned_absolute wpe"},
    {"gelu_tanh gelu_exact", "gelu"},
    {"gelu_tanh", "gelu_new gelu_pytorch_tanh gelu_approx"},
    {"swiglu", "silu swish silu_mul gated_silu"},
    {"relu2", "relu_squared squared_relu relu^2 relusquared"},
    {"block", "full"},
    {"none", "no off false null disabled"},
    {"random", "shuffle shuffled"},
    {"epochs", "epoch sequential"},
    {"stop", "raise error abort fail halt"},
    {"skip", "ignore"},
    {"report", "warn warning log"},
};

// Each entry answers a key of another trainer: it says what Ingot has in its place, or that Ingot lacks it.
struct OtherFeature {
  std::string_view names, answer;
};

constexpr OtherFeature kOtherFeatures[] = {
    {"compile torch_compile use_compile jit_compile",
     "Ingot's kernels are compiled with the program, so there is nothing to turn on"},
    {"flash_attention use_flash_attention flash_attn use_flash_attn attn_implementation attention_backend "
     "sdpa",
     "attention is always computed in tiles, without the matrix of scores, so there is nothing to turn on"},
    {"pin_memory persistent_workers",
     "batches for a GPU always go through pinned memory, and data.workers are threads that live as long as "
     "the run"},
    {"packing pack_sequences sample_packing",
     "text is always packed into windows of model.context tokens, conversations whole; data.document_mask "
     "hides "
     "other documents"},
    {"wandb wandb_project wandb_run_name wandb_log use_wandb report_to wandb_entity mlflow comet",
     "`ingot export-run RUN --wandb` or --mlflow sends a run's curves; every run writes TensorBoard events, "
     "and "
     "`ingot serve` shows it live"},
    {"tensorboard tensorboard_dir use_tensorboard",
     "every run writes TensorBoard events to its folder, so there is nothing to turn on"},
    {"lora use_lora peft peft_config",
     "lora.rank, lora.alpha and lora.targets train adapters of the model in train.init_from"},
    {"lora_dropout qlora load_in_4bit load_in_8bit",
     "Ingot's adapters (lora.rank) have no dropout, and their model is in precision.compute"},
    {"messages conversations sft",
     "data.train takes chat data (docs/fine-tuning.md); the preset sft trains on it"},
    {"dpo_beta ref_model reference_model",
     "the preset dpo trains on pairs of answers (dpo.beta, docs/fine-tuning.md); the reference is the model "
     "that the run starts from"},
    {"ppo grpo rlhf reward_model",
     "Ingot trains on the next token, or on pairs of answers (the preset dpo), without a model of rewards"},
    {"moe num_experts n_experts num_local_experts num_experts_per_tok n_routed_experts expert_parallel "
     "expert_model_parallel_size ep",
     "Ingot has no mixture of experts"},
    {"context_parallel context_parallel_size context_parallel_degree cp_size cp ring_attention",
     "Ingot has no context parallelism"},
    {"tasks eval_tasks lm_eval benchmarks hellaswag mmlu",
     "Ingot evaluates loss, bits per byte and top-1 on text, and has no tasks"},
    {"extends inherit inherits base_config include defaults",
     "a file builds on a preset, by preset = \"NAME\" at its top, and on no other file"},
};

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const size_t end = std::min(list.find(' '), list.size());
    words.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

bool has_word(std::string_view list, std::string_view word) {
  const std::vector<std::string> words = words_of(list);
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::vector<std::string> ours_for(std::span<const KnownNames> table, std::string_view other) {
  std::vector<std::string> ours;
  for (const KnownNames& row : table)
    if (has_word(row.others, other))
      for (std::string& name : words_of(row.ours)) ours.push_back(std::move(name));
  return ours;
}

// Returns a name spelled like a configuration key: weight-decay becomes weight_decay.
std::string as_key(std::string_view name) {
  std::string key = lower_case(name);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

}  // namespace

std::vector<std::string> keys_known_as(std::string_view name) { return ours_for(kKeys, as_key(name)); }

std::string_view answer_about(std::string_view name) {
  const std::string key = as_key(name);
  for (const OtherFeature& feature : kOtherFeatures)
    if (has_word(feature.names, key)) return feature.answer;
  return "";
}

std::vector<std::string> sections_known_as(std::string_view section) {
  return ours_for(kSections, as_key(section));
}

std::vector<std::string> suggested_values(std::string_view value, std::span<const std::string> names) {
  const auto is_allowed = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const std::string lower = lower_case(value);
  if (is_allowed(lower)) return {lower};
  std::vector<std::string> known = ours_for(kValues, lower);
  std::erase_if(known, [&](const std::string& name) { return !is_allowed(name); });
  return known.empty() ? nearest_names(lower, names) : known;
}

std::vector<std::string> names_of_other_trainers() {
  std::vector<std::string> all;
  for (const KnownNames& row : kKeys)
    for (std::string& name : words_of(row.others)) all.push_back(std::move(name));
  return all;
}

}  // namespace ingot
