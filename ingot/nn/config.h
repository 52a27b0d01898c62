// What a model is, as data: GPT-2, LLaMA and the speed-run variant are choices of these fields.
#pragma once

#include <cstdint>
#include <string>

namespace ingot {

enum class NormKind { kLayerNorm, kRmsNorm, kRmsNormWeightless };
enum class PositionKind { kLearned, kRope };
enum class MlpKind { kGeluTanh, kGeluExact, kRelu2, kSwiglu };
enum class CapKind { kNone, kTanh, kSigmoid };
// kNormal: N(0, init_std). kScaled: the projections into the residual stream by init_std / sqrt(2 layers)
// (GPT-2). kZero: those projections, and an untied head, start at zero (the speed-run variant).
enum class ProjectionInit { kNormal, kScaled, kZero };

// Cap of the logits: z = x | a tanh(x/a) | a sigmoid((x + b)/c).
struct LogitCapConfig {
  CapKind kind = CapKind::kNone;
  double a = 15, b = 0, c = 7.5;
};

struct ModelConfig {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t kv_heads = 0;         // 0: as many as heads
  int64_t head_dim = 0;         // 0: width / heads
  int64_t width = 128;          // C
  int64_t ffn = 0;              // F; 0: 4 * width, or for SwiGLU 8/3 * width rounded up to a multiple of 32
  int64_t context = 64;         // T of training, and the most positions a learned table holds
  int64_t vocab = 0;            // V; 0: the tokenizer's
  int64_t vocab_multiple = 64;  // rows of the table are padded to a multiple; padding gets no probability

  NormKind norm = NormKind::kRmsNorm;
  PositionKind positions = PositionKind::kRope;
  MlpKind mlp = MlpKind::kSwiglu;
  bool has_bias = false;  // of the linears, and of LayerNorm
  bool has_qk_norm = false;
  bool is_tied = true;  // the head shares the embedding's table
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  double dropout = 0;  // of the embedding, the attention probabilities and what each half block adds
  LogitCapConfig cap = {};
  ProjectionInit projection_init = ProjectionInit::kScaled;
  double init_std = 0.02;

  // The same with every 0 resolved. REQUIRES: validate() passes.
  ModelConfig resolved() const;
  // Throws a kUsage error that names the key, the value and the nearest valid one.
  void validate() const;

  // Of a resolved config:
  int64_t vocab_padded() const { return (vocab + vocab_multiple - 1) / vocab_multiple * vocab_multiple; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t mlp_in_width() const { return mlp == MlpKind::kSwiglu ? 2 * ffn : ffn; }
  int64_t parameters() const;  // padding rows not counted
  // Model FLOPs of one token, forward and backward: 6 per parameter of every product, plus attention's
  // 12 * layers * heads * head_dim * context / 2 (causal).
  double flops_per_token() const;
};

// The divisor of n >= 1 that is nearest to `wanted`; of two, the smaller.
int64_t nearest_divisor(int64_t n, int64_t wanted);

}  // namespace ingot
