// The configuration of a model as plain data: GPT-2, LLaMA and the speed-run variant are
// choices of its fields.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ingot/ops/activation.h"
#include "ingot/ops/cross_entropy.h"
#include "ingot/ops/rope.h"

namespace ingot {

enum class NormKind { kLayerNorm, kRmsNorm, kRmsNormWeightless };
// kBefore: each half of a block normalises its input (x + f(norm(x))); kAfter: its output (x + norm(f(x)),
// OLMo 2).
enum class NormPlace { kBefore, kAfter };
// kHead: every head of the queries and keys has a norm of its own; kWidth: one norm covers all heads of the
// queries, another all heads of the keys (OLMo 2).
enum class QkNormOver { kHead, kWidth };
enum class PositionKind { kLearned, kRope };
// kNormal: N(0, init_std). kScaled: the projections into the residual stream use init_std / sqrt(2 layers)
// (GPT-2). kZero: those projections, and an untied head, start at zero (the speed-run variant).
enum class ProjectionInit { kNormal, kScaled, kZero };

// Cap of the logits: z = x, a tanh(x/a) or a sigmoid((x + b)/c).
struct LogitCapConfig {
  LogitCap kind = LogitCap::kNone;
  double a = 15, b = 0, c = 7.5;
};

// Low-rank adapters of the blocks' linears (LoRA), which are trained in place of the model's own parameters.
struct LoraConfig {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 16;
  std::vector<std::string> targets =
      {};  // patterns of the linears that have one ("blocks.*.attention.*"); empty: all

  bool adapts(const std::string& linear) const;
};

struct ModelConfig {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t kv_heads = 0;         // 0: same as heads
  int64_t head_dim = 0;         // 0: width / heads
  int64_t width = 128;          // C
  int64_t ffn = 0;              // F; 0: 4 * width, or for SwiGLU 8/3 * width rounded up to a multiple of 32
  int64_t context = 64;         // T in training, and the number of positions of a learned table
  int64_t vocab = 0;            // V; 0: the tokenizer's vocabulary
  int64_t vocab_multiple = 64;  // table rows are padded to a multiple of this; padding gets no probability

  NormKind norm = NormKind::kRmsNorm;
  NormPlace norm_place = NormPlace::kBefore;  // where a block's norms are
  PositionKind positions = PositionKind::kRope;
  Activation mlp = Activation::kSwiglu;
  bool has_bias = false;      // in the linears and LayerNorm
  bool has_qkv_bias = false;  // in the projections to q, k and v alone; has_bias includes it
  bool has_qk_norm = false;
  QkNormOver qk_norm_over = QkNormOver::kHead;
  bool has_qk_norm_gain = false;  // QK-norm multiplies by learned gains of a layer's queries and keys
  int64_t window = 0;             // a token attends to this many tokens, itself included; 0: to all before it
  std::vector<int64_t> full_layers = {};  // blocks, from 0 and ascending, that have no window
  bool is_tied = true;                    // the head shares the embedding's table
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling = {};  // so that a model can read longer contexts
  int64_t rope_dims = 0;          // channels of a head that rotate, the first ones; 0: all
  int64_t nope_every = 0;         // every n-th block attends without rotary positions; 0: none does
  double dropout = 0;  // on the embedding, the attention probabilities and the output of each half block
  LogitCapConfig cap = {};
  ProjectionInit projection_init = ProjectionInit::kScaled;
  double init_std = 0.02;
  double matrix_init_std = 0;  // of the blocks' matrices; 0: init_std
  double head_init_std = 0;    // of an untied head; 0: init_std

  bool has_parallel_residual = false;         // the halves of a block read one norm of its input (GPT-J)
  std::vector<int64_t> mlp_only_layers = {};  // blocks, from 0 and ascending, that have no attention
  // The next four are the speed run's (github.com/KellerJordan/modded-nanogpt, January 2025).
  bool has_embedding_norm = false;  // the blocks read the norm of the embedding
  // A block reads a x + b (the first block's input), with a = 1 and b = 0 at first.
  bool has_input_mix = false;
  // Block L-1-l of L adds s times the output of block l < L/2 to its input, with s = 1 at first.
  bool has_skips = false;
  // Tables of value embeddings, which the first blocks and the last ones share: table i is that of blocks i
  // and L - n + i of L. Values become a v + b (the token's row), with a = b = 1/2 at first; in blocks without
  // a table a v.
  int64_t value_embeddings = 0;

  LoraConfig lora = {};

  double matrix_std() const { return matrix_init_std > 0 ? matrix_init_std : init_std; }
  double head_std() const { return head_init_std > 0 ? head_init_std : init_std; }

  // Returns a copy with every 0 replaced by its default. REQUIRES: validate() passes.
  ModelConfig resolved() const;
  // Throws a kUsage error that names the key, the value and the nearest valid one.
  void validate() const;

  // The following are for a resolved config.
  int64_t vocab_padded() const { return (vocab + vocab_multiple - 1) / vocab_multiple * vocab_multiple; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  // Number of the learned gains of a layer's queries or keys, which have `of_heads` heads.
  int64_t qk_gain_width(int64_t of_heads) const {
    return qk_norm_over == QkNormOver::kWidth ? of_heads * head_dim : head_dim;
  }
  // Number of all learned gains in the QK-norm of a layer.
  int64_t qk_gains() const { return has_qk_norm_gain ? qk_gain_width(heads) + qk_gain_width(kv_heads) : 0; }
  bool has_bias_of_qkv() const { return has_bias || has_qkv_bias; }
  // True if the block with this index, from 0, rotates queries and keys.
  bool is_rotary(int64_t layer) const {
    return positions == PositionKind::kRope && (nope_every == 0 || (layer + 1) % nope_every != 0);
  }
  // True if the model has parts that belong to no published family: what the speed run added, or GPT-J's
  // blocks or rotation.
  bool has_own_parts() const {
    return has_parallel_residual || !mlp_only_layers.empty() || has_embedding_norm || has_input_mix ||
           has_skips || value_embeddings > 0 || rotated_dims() != head_dim;
  }
  bool has_attention(int64_t layer) const {
    return !std::binary_search(mlp_only_layers.begin(), mlp_only_layers.end(), layer);
  }
  // The block whose output a block adds to its input; -1: none.
  int64_t skip_of(int64_t layer) const {
    return has_skips && layer >= layers - layers / 2 ? layers - 1 - layer : -1;
  }
  // The table of value embeddings of a block; -1: none.
  int64_t value_table_of(int64_t layer) const {
    const int64_t n = value_embeddings;
    return layer < n ? layer : layer >= layers - n ? layer - (layers - n) : -1;
  }
  int64_t rotated_dims() const { return rope_dims > 0 ? rope_dims : head_dim; }
  // Window of the block with this index; 0: none.
  int64_t window_of(int64_t layer) const {
    return std::binary_search(full_layers.begin(), full_layers.end(), layer) ? 0 : window;
  }
  int64_t mlp_in_width() const { return mlp == Activation::kSwiglu ? 2 * ffn : ffn; }
  int64_t parameters() const;  // without padding rows
  int64_t trained_parameters() const;
  // Model FLOPs per token, forward and backward: 6 per weight of each product, plus 12 * layers * heads *
  // head_dim * context / 2 for causal attention, or less with a window. With adapters 4 per frozen weight
  // and, in blocks below the lowest adapter, forward alone.
  double flops_per_token() const;
  double attention_flops_per_token() const;  // the part that has no weights
};

// The divisor of n >= 1 that is nearest to `wanted`; the smaller one if two are equally near.
int64_t nearest_divisor(int64_t n, int64_t wanted);

}  // namespace ingot
