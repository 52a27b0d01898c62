// The keys of [model] and [lora].
#include "ingot/config/config_key_kinds.h"

namespace ingot::key_kinds {
namespace {

using R = RunConfig;
using M = ModelConfig;

void add_rope_keys(std::vector<ConfigKey>& keys) {
  using S = RopeScaling;
  const auto model = &R::model;
  const auto scaling = &M::rope_scaling;
  keys.push_back(choice<RopeScaling::Kind>("model.rope_scaling", kCourse,
                                           {{"none", RopeScaling::Kind::kNone},
                                            {"linear", RopeScaling::Kind::kLinear},
                                            {"llama3", RopeScaling::Kind::kLlama3},
                                            {"yarn", RopeScaling::Kind::kYarn}},
                                           "scaling of the rotary frequencies for longer contexts", model,
                                           scaling, &S::kind));
  keys.push_back(number("model.rope_factor", kCourse, "rope_scaling: how many times longer", model, scaling,
                        &S::factor));
  keys.push_back(number("model.rope_low_freq_factor", kCourse,
                        "llama3: waves longer than rope_original_context / this are scaled", model, scaling,
                        &S::low_freq_factor));
  keys.push_back(number("model.rope_high_freq_factor", kCourse,
                        "llama3: waves shorter than rope_original_context / this are not", model, scaling,
                        &S::high_freq_factor));
  keys.push_back(whole("model.rope_original_context", kCourse, 1, 1 << 24,
                       "llama3, yarn: context of the model before scaling", model, scaling,
                       &S::original_context));
  keys.push_back(number("model.rope_beta_fast", kCourse,
                        "yarn: what turns more often than this in rope_original_context is not scaled", model,
                        scaling, &S::beta_fast));
  keys.push_back(number("model.rope_beta_slow", kCourse,
                        "yarn: what turns less often than this in rope_original_context is scaled", model,
                        scaling, &S::beta_slow));
  keys.push_back(number("model.rope_attention_factor", kCourse,
                        "yarn: factor of queries and keys; 0: 0.1 ln(rope_factor) + 1", model, scaling,
                        &S::attention_factor));
  keys.push_back(whole("model.rope_dims", kCourse, 0, 4096,
                       "channels of a head that rotate, the first ones; 0: all", model, &M::rope_dims));
  keys.push_back(whole("model.nope_every", kCourse, 0, 10'000,
                       "every n-th block attends without rotary positions; 0: none does", model,
                       &M::nope_every));
}

void add_speed_run_keys(std::vector<ConfigKey>& keys) {
  const auto model = &R::model;
  keys.push_back(flag("model.parallel_residual", kModel,
                      "attention and MLP of a block read one norm and are added together (GPT-J)", model,
                      &M::has_parallel_residual));
  keys.push_back(wholes("model.mlp_only_layers", kModel, "blocks, from 0, that have no attention", model,
                        &M::mlp_only_layers));
  keys.push_back(flag("model.embedding_norm", kModel, "normalise the embedding before the first block", model,
                      &M::has_embedding_norm));
  keys.push_back(flag("model.input_mix", kModel,
                      "a block reads a x + b (the first block's input), by learned a = 1 and b = 0 at first",
                      model, &M::has_input_mix));
  keys.push_back(
      flag("model.skips", kModel,
           "block L-1-l adds the output of block l to its input, times a learned scalar, 1 at first", model,
           &M::has_skips));
  keys.push_back(whole("model.value_embeddings", kModel, 0, 10'000,
                       "tables that add a row per token to the values of as many first and last blocks",
                       model, &M::value_embeddings));
}

void add_lora_keys(std::vector<ConfigKey>& keys) {
  using L = LoraConfig;
  const auto model = &R::model;
  keys.push_back(whole("lora.rank", kModel, 0, 4096,
                       "rank of the adapters (LoRA) that are trained in place of the model's own weights; 0: "
                       "none, all weights are trained",
                       model, &M::lora, &L::rank));
  keys.push_back(number("lora.alpha", kModel, "an adapter's output is multiplied by alpha / rank", model,
                        &M::lora, &L::alpha));
  keys.push_back(texts("lora.targets", kModel,
                       "patterns of the linears that have an adapter (blocks.*.attention.*); empty: all of "
                       "the blocks",
                       model, &M::lora, &L::targets));
}

}  // namespace

void add_model_keys(std::vector<ConfigKey>& keys) {
  const auto model = &R::model;
  keys.push_back(whole("model.layers", kModel, 1, 10'000, "transformer blocks", model, &M::layers));
  keys.push_back(whole("model.heads", kModel, 1, 4096, "attention heads of a layer", model, &M::heads));
  keys.push_back(whole("model.kv_heads", kModel, 0, 4096, "key and value heads; 0: as many as heads", model,
                       &M::kv_heads));
  keys.push_back(
      whole("model.head_dim", kModel, 0, 4096, "channels per head; 0: width / heads", model, &M::head_dim));
  keys.push_back(
      whole("model.width", kModel, 1, 1 << 20, "channels of the residual stream", model, &M::width));
  keys.push_back(whole("model.ffn", kModel, 0, 1 << 22,
                       "hidden size of the MLP; 0: 4 width, for swiglu 8/3 width rounded up to 32s", model,
                       &M::ffn));
  keys.push_back(whole("model.context", kText, 1, 1 << 24, "context length in tokens", model, &M::context));
  keys.push_back(whole("model.vocab", kModel, 0, (int64_t{1} << 31) - 1,
                       "tokens; 0: as many as the tokenizer has", model, &M::vocab));
  keys.push_back(whole("model.vocab_multiple", kModel, 1, 1 << 20, "pad the vocabulary to a multiple of this",
                       model, &M::vocab_multiple));
  keys.push_back(choice<NormKind>("model.norm", kModel,
                                  {{"layernorm", NormKind::kLayerNorm},
                                   {"rmsnorm", NormKind::kRmsNorm},
                                   {"rmsnorm_weightless", NormKind::kRmsNormWeightless}},
                                  "normalisation", model, &M::norm));
  keys.push_back(choice<NormPlace>(
      "model.norm_place", kModel, {{"before", NormPlace::kBefore}, {"after", NormPlace::kAfter}},
      "norms of the attention's and the MLP's input, or of their output", model, &M::norm_place));
  keys.push_back(choice<PositionKind>("model.positions", kModel,
                                      {{"learned", PositionKind::kLearned}, {"rope", PositionKind::kRope}},
                                      "position encoding", model, &M::positions));
  keys.push_back(choice<Activation>("model.mlp", kModel,
                                    {{"gelu_tanh", Activation::kGeluTanh},
                                     {"gelu_exact", Activation::kGeluExact},
                                     {"relu2", Activation::kRelu2},
                                     {"swiglu", Activation::kSwiglu}},
                                    "activation of the MLP", model, &M::mlp));
  keys.push_back(flag("model.bias", kModel, "biases in the linears and in LayerNorm", model, &M::has_bias));
  keys.push_back(flag("model.qkv_bias", kModel, "biases in the projections to queries, keys and values alone",
                      model, &M::has_qkv_bias));
  keys.push_back(whole("model.window", kCourse, 0, 1 << 24,
                       "tokens that a token attends to, itself included; 0: all before it", model,
                       &M::window));
  keys.push_back(wholes("model.full_layers", kCourse,
                        "blocks, from 0, that attend to all tokens despite model.window", model,
                        &M::full_layers));
  keys.push_back(
      flag("model.qk_norm", kModel, "normalise queries and keys (QK-norm)", model, &M::has_qk_norm));
  keys.push_back(choice<QkNormOver>(
      "model.qk_norm_over", kModel, {{"head", QkNormOver::kHead}, {"width", QkNormOver::kWidth}},
      "QK-norm of every head, or of all heads together", model, &M::qk_norm_over));
  keys.push_back(flag("model.qk_norm_gain", kModel,
                      "learned gains in QK-norm, one per channel of what a norm covers", model,
                      &M::has_qk_norm_gain));
  keys.push_back(
      flag("model.tied", kModel, "tie the output head to the token embedding", model, &M::is_tied));
  keys.push_back(
      number("model.norm_eps", kCourse, "epsilon added to the variance in norms", model, &M::norm_eps));
  keys.push_back(
      number("model.rope_theta", kCourse, "base of the rotary frequencies", model, &M::rope_theta));
  add_rope_keys(keys);
  keys.push_back(number("model.dropout", kCourse,
                        "probability, in [0, 1), for the embedding, attention probabilities and residuals",
                        model, &M::dropout));
  keys.push_back(choice<LogitCap>(
      "model.cap", kCourse,
      {{"none", LogitCap::kNone}, {"tanh", LogitCap::kTanh}, {"sigmoid", LogitCap::kSigmoid}},
      "soft cap of the logits: a tanh(x/a) or a sigmoid((x+b)/c)", model, &M::cap, &LogitCapConfig::kind));
  keys.push_back(number("model.cap_a", kCourse, "a of the cap", model, &M::cap, &LogitCapConfig::a));
  keys.push_back(number("model.cap_b", kCourse, "b of the sigmoid cap", model, &M::cap, &LogitCapConfig::b));
  keys.push_back(number("model.cap_c", kCourse, "c of the sigmoid cap", model, &M::cap, &LogitCapConfig::c));
  keys.push_back(choice<ProjectionInit>(
      "model.projection_init", kCourse,
      {{"normal", ProjectionInit::kNormal},
       {"scaled", ProjectionInit::kScaled},
       {"zero", ProjectionInit::kZero}},
      "initialisation of the projections into the residual stream; scaled: by 1/sqrt(2 layers)", model,
      &M::projection_init));
  keys.push_back(
      number("model.init_std", kCourse, "standard deviation of the initial weights", model, &M::init_std));
  keys.push_back(number("model.matrix_init_std", kCourse, "init_std of the blocks' matrices; 0: init_std",
                        model, &M::matrix_init_std));
  keys.push_back(number("model.head_init_std", kCourse, "init_std of an untied head; 0: init_std", model,
                        &M::head_init_std));
  add_speed_run_keys(keys);
  add_lora_keys(keys);
}

}  // namespace ingot::key_kinds
