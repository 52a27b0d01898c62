#include "ingot/nn/models/block.h"

#include <cmath>

#include "ingot/nn/primitives/elementwise.h"

namespace ingot {
namespace {

// YaRN multiplies q and k; their products are multiplied here instead, so that the rotations stay rotations.
double score_scale(const ModelConfig& config, int layer) {
  const double factor = config.is_rotary(layer) ? config.rope_scaling.q_and_k_factor() : 1;
  return factor * factor / std::sqrt(static_cast<double>(config.head_dim));
}

Activation activation_of(MlpKind kind) {
  switch (kind) {
    case MlpKind::kGeluExact:
      return Activation::kGeluExact;
    case MlpKind::kRelu2:
      return Activation::kRelu2;
    default:
      return Activation::kGeluTanh;
  }
}

}  // namespace

BlockLayers declare_block(ParamList& params, const ModelConfig& config, int index, const TensorParallel& tp,
                          const Fp8LinearConfig& fp8, std::vector<std::string>& fp8_tensors) {
  const int unit = index + 1;
  const int64_t C = config.width, D = config.head_dim, q_rows = config.heads * D,
                kv_rows = config.kv_heads * D;
  const bool is_swiglu = config.mlp == MlpKind::kSwiglu;
  const double scaled = config.projection_init == ProjectionInit::kScaled
                            ? config.matrix_std() / std::sqrt(2.0 * static_cast<double>(config.layers))
                            : config.matrix_std();
  const HeadsSpec heads{.H = tp.slice(config.heads), .K = tp.slice(config.kv_heads, 1), .D = D};
  BlockLayers l{.scope = {.unit = unit, .block = index},
                .prefix = fmt::format("blocks.{}.", index),
                .is_norm_after = config.norm_place == NormPlace::kAfter,
                .mlp = config.mlp,
                .attention_site = static_cast<uint32_t>(2 * index + 1),
                .mlp_site = static_cast<uint32_t>(2 * index + 2)};
  const auto declare = [&](LinearSpec spec) {
    spec.unit = unit;
    spec.prefix = l.prefix + spec.prefix;
    return declare_linear(params, spec, tp);
  };
  const auto projection = [&](const char* name, int64_t in) {
    return declare({.prefix = name,
                    .out = C,
                    .in = in,
                    .split = Split::kInputs,
                    .init = config.projection_init == ProjectionInit::kZero ? Init::kZero : Init::kNormal,
                    .std = scaled,
                    .has_bias = config.has_bias});
  };
  l.attention_norm = declare_norm(params, unit, l.prefix + "attention.norm", config);
  l.qkv = declare({.prefix = "attention.qkv",
                   .out = config.qkv_width(),
                   .in = C,
                   .fused_rows = {q_rows, kv_rows, kv_rows},
                   .least_rows = D,
                   .std = config.matrix_std(),
                   .has_bias = config.has_bias_of_qkv()});
  l.proj = projection("attention.proj", q_rows);
  l.rotation = {.heads = heads,
                .is_rotary = config.is_rotary(index),
                .has_norm = config.has_qk_norm,
                .is_norm_over_width = config.qk_norm_over == QkNormOver::kWidth,
                .eps = static_cast<float>(config.norm_eps)};
  const auto declare_gain = [&](const char* name, int64_t of_heads) {
    return params.add({.name = l.prefix + name,
                       .shape = {config.qk_gain_width(of_heads)},
                       .role = ParamRole::kNorm,
                       .init = Init::kOne,
                       .unit = unit});
  };
  if (config.has_qk_norm_gain) {
    l.rotation.q_gain = declare_gain("attention.q_norm.weight", config.heads);
    l.rotation.k_gain = declare_gain("attention.k_norm.weight", config.kv_heads);
  }
  l.attention = {.heads = heads,
                 .scale = static_cast<float>(score_scale(config, index)),
                 .window = config.window_of(index),
                 .dropout_site = kAttentionSites + static_cast<uint32_t>(index)};
  l.mlp_norm = declare_norm(params, unit, l.prefix + "mlp.norm", config);
  l.up = declare(
      {.prefix = "mlp.up",
       .out = config.mlp_in_width(),
       .in = C,
       .fused_rows = is_swiglu ? std::vector<int64_t>{config.ffn, config.ffn} : std::vector<int64_t>{},
       .std = config.matrix_std(),
       .has_bias = config.has_bias,
       .is_bias_activated = !is_swiglu});
  l.down = projection("mlp.down", config.ffn);
  for (LinearLayer* layer : {&l.qkv, &l.proj, &l.up, &l.down}) use_fp8(*layer, params, fp8, tp, fp8_tensors);
  return l;
}

namespace {

// Returns x + f(norm(x)) or, with norms after the halves, x + norm(f(x)).
template <typename F>
ValueId half(Builder& b, ValueId x, const NormSpec& spec, bool is_norm_after, uint32_t site, F f) {
  ValueId y = f(is_norm_after ? x : norm(b, x, spec));
  if (is_norm_after) {
    b.set_role(y, Role::kNormInput);
    y = norm(b, y, spec);
  }
  return add(b, x, dropout(b, y, site));
}

}  // namespace

ValueId block(Builder& b, ValueId x, const BlockLayers& l) {
  Scope scope = l.scope;
  scope.half = Half::kAttention;
  b.enter(scope, l.prefix + "attention.");
  x = half(b, x, l.attention_norm, l.is_norm_after, l.attention_site, [&](ValueId h) {
    const ValueId qkv = rotate(b, linear(b, h, l.qkv), l.rotation);
    return linear(b, attention(b, qkv, l.attention), l.proj);
  });
  scope.half = Half::kMlp;
  b.enter(scope, l.prefix + "mlp.");
  return half(b, x, l.mlp_norm, l.is_norm_after, l.mlp_site, [&](ValueId h) {
    const ValueId pre = linear(b, h, l.up);
    const ValueId act =
        l.mlp == MlpKind::kSwiglu ? swiglu(b, pre) : activate(b, pre, activation_of(l.mlp), l.up.bias);
    return linear(b, act, l.down);
  });
}

}  // namespace ingot
