#include "ingot/nn/config.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/error.h"

namespace ingot {
namespace {

void require(bool holds, const std::string& message) {
  if (!holds) throw Error(message, ErrorKind::kUsage);
}

void require_positive(const char* key, int64_t value) {
  require(value >= 1, fmt::format("model.{} must be at least 1, got {}", key, value));
}

void validate_yarn(const ModelConfig& c) {
  const RopeScaling& scaling = c.rope_scaling;
  require(scaling.factor >= 1, fmt::format("model.rope_factor must be at least 1 with "
                                           "model.rope_scaling = yarn, got {}",
                                           scaling.factor));
  require(scaling.beta_slow > 0 && scaling.beta_fast > scaling.beta_slow,
          fmt::format("model.rope_beta_slow = {} must be above 0 and below model.rope_beta_fast = {}",
                      scaling.beta_slow, scaling.beta_fast));
  require(scaling.attention_factor >= 0,
          fmt::format("model.rope_attention_factor must not be negative, got {}; 0 stands for "
                      "0.1 ln(model.rope_factor) + 1",
                      scaling.attention_factor));
  require(c.rope_theta > 1, fmt::format("model.rope_theta must be above 1 with model.rope_scaling = yarn, "
                                        "got {}",
                                        c.rope_theta));
}

void validate_rope(const ModelConfig& c) {
  const RopeScaling& scaling = c.rope_scaling;
  const bool is_rotary = c.positions == PositionKind::kRope;
  require(is_rotary || c.nope_every == 0, "model.nope_every is for model.positions = rope; set it to 0");
  if (scaling.kind == RopeScaling::Kind::kNone) return;
  require(is_rotary, "model.rope_scaling is for model.positions = rope; set it to none");
  require(scaling.factor > 0, fmt::format("model.rope_factor must be above 0, got {}", scaling.factor));
  if (scaling.kind == RopeScaling::Kind::kLinear) return;
  require(scaling.original_context >= 1,
          fmt::format("model.rope_original_context must be at least 1, got {}", scaling.original_context));
  if (scaling.kind == RopeScaling::Kind::kYarn) return validate_yarn(c);
  require(scaling.low_freq_factor > 0 && scaling.high_freq_factor > scaling.low_freq_factor,
          fmt::format(
              "model.rope_low_freq_factor = {} must be above 0 and below model.rope_high_freq_factor = {}",
              scaling.low_freq_factor, scaling.high_freq_factor));
}

void require_layers(const char* key, const std::vector<int64_t>& blocks, int64_t layers) {
  for (size_t i = 0; i < blocks.size(); ++i)
    require(
        blocks[i] >= (i == 0 ? 0 : blocks[i - 1] + 1) && blocks[i] < layers,
        fmt::format("model.{} must be ascending blocks from 0 to {}, got {}", key, layers - 1, blocks[i]));
}

void validate_speed_run(const ModelConfig& c) {
  require_layers("mlp_only_layers", c.mlp_only_layers, c.layers);
  require(!c.has_parallel_residual || c.norm_place == NormPlace::kBefore,
          "model.parallel_residual = true needs model.norm_place = before: its halves read one norm");
  require(c.value_embeddings >= 0 && 2 * c.value_embeddings <= c.layers,
          fmt::format("model.value_embeddings must lie in 0 .. {}, half of model.layers, got {}",
                      c.layers / 2, c.value_embeddings));
  for (const int64_t layer : c.mlp_only_layers)
    require(c.value_table_of(layer) < 0,
            fmt::format("model.mlp_only_layers has block {}, whose values use a table of "
                        "model.value_embeddings = {}",
                        layer, c.value_embeddings));
}

}  // namespace

int64_t nearest_divisor(int64_t n, int64_t wanted) {
  const int64_t nearest = std::clamp<int64_t>(wanted, 1, n);
  for (int64_t distance = 0; distance < n; ++distance) {
    if (nearest - distance >= 1 && n % (nearest - distance) == 0) return nearest - distance;
    if (nearest + distance <= n && n % (nearest + distance) == 0) return nearest + distance;
  }
  return 1;
}

void ModelConfig::validate() const {
  require_positive("layers", layers);
  require_positive("heads", heads);
  require_positive("width", width);
  require_positive("context", context);
  require_positive("vocab_multiple", vocab_multiple);
  require(kv_heads >= 0 && (kv_heads == 0 || heads % kv_heads == 0),
          fmt::format("model.kv_heads must divide model.heads = {}, got {}; the nearest valid value is {}",
                      heads, kv_heads, nearest_divisor(heads, kv_heads)));
  require(
      head_dim >= 1 || (head_dim == 0 && width % heads == 0),
      fmt::format("model.width = {} must be a multiple of model.heads = {}; the nearest valid width is {}, "
                  "or set model.head_dim",
                  width, heads, std::max<int64_t>(1, (width + heads / 2) / heads) * heads));
  const int64_t D = head_dim ? head_dim : width / heads;
  require(positions != PositionKind::kRope || D % 2 == 0,
          fmt::format("rotary positions need an even head size, got {}; the nearest valid value of "
                      "model.head_dim is {}",
                      D, D + 1));
  require(rope_dims == 0 || positions == PositionKind::kRope,
          "model.rope_dims is for model.positions = rope; set it to 0");
  require(rope_dims >= 0 && rope_dims <= D && rope_dims % 2 == 0,
          fmt::format("model.rope_dims must be even and at most the head size {}, got {}; 0 stands for all",
                      D, rope_dims));
  require(ffn >= 0, fmt::format("model.ffn must not be negative, got {}", ffn));
  require(vocab >= 0 && vocab < (int64_t{1} << 31),
          fmt::format("model.vocab must lie in 0 .. 2^31 - 1, got {}", vocab));
  require(dropout >= 0 && dropout < 1, fmt::format("model.dropout must lie in [0, 1), got {}", dropout));
  require(norm_eps > 0, fmt::format("model.norm_eps must be above 0, got {}", norm_eps));
  require(rope_theta > 0, fmt::format("model.rope_theta must be above 0, got {}", rope_theta));
  require(window >= 0, fmt::format("model.window must not be negative, got {}; 0 turns it off", window));
  require_layers("full_layers", full_layers, layers);
  require(full_layers.empty() || window > 0,
          "model.full_layers is for models with a window; set model.window, or leave it out");
  require(nope_every >= 0,
          fmt::format("model.nope_every must not be negative, got {}; 0 turns it off", nope_every));
  require(!has_qk_norm_gain || has_qk_norm, "model.qk_norm_gain = true needs model.qk_norm = true");
  require(qk_norm_over == QkNormOver::kHead || has_qk_norm,
          "model.qk_norm_over = width needs model.qk_norm = true");
  validate_rope(*this);
  validate_speed_run(*this);
  require(init_std > 0, fmt::format("model.init_std must be above 0, got {}", init_std));
  require(matrix_init_std >= 0,
          fmt::format("model.matrix_init_std must not be negative, got {}", matrix_init_std));
  require(head_init_std >= 0, fmt::format("model.head_init_std must not be negative, got {}", head_init_std));
  require(cap.kind == LogitCap::kNone || cap.a > 0,
          fmt::format("model.cap_a must be above 0, got {}", cap.a));
  require(cap.kind != LogitCap::kSigmoid || cap.c > 0,
          fmt::format("model.cap_c must be above 0, got {}", cap.c));
}

ModelConfig ModelConfig::resolved() const {
  validate();
  ModelConfig r = *this;
  if (r.kv_heads == 0) r.kv_heads = heads;
  if (r.head_dim == 0) r.head_dim = width / heads;
  if (r.ffn == 0) r.ffn = mlp == Activation::kSwiglu ? (8 * width / 3 + 31) / 32 * 32 : 4 * width;
  return r;
}

}  // namespace ingot
