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

}  // namespace

std::vector<int> BlockLayers::adapters() const {
  std::vector<int> params;
  for (const LinearLayer* layer : linears())
    for (const LinearLayer& part : layer->adapter) params.push_back(part.weight);
  return params;
}

BlockLayers declare_block(ParamList& params, const ModelConfig& config, int index, const TensorParallel& tp,
                          const Fp8LinearConfig& fp8, std::vector<std::string>& fp8_tensors) {
  const int unit = index + 1;
  const int64_t C = config.width, D = config.head_dim, q_rows = config.heads * D,
                kv_rows = config.kv_heads * D;
  const bool is_swiglu = config.mlp == Activation::kSwiglu;
  const double scaled = config.projection_init == ProjectionInit::kScaled
                            ? config.matrix_std() / std::sqrt(2.0 * static_cast<double>(config.layers))
                            : config.matrix_std();
  const HeadsSpec heads{.H = tp.slice(config.heads), .K = tp.slice(config.kv_heads, 1), .D = D};
  BlockLayers l{.scope = {.unit = unit, .block = index},
                .prefix = fmt::format("blocks.{}.", index),
                .has_attention = config.has_attention(index),
                .has_parallel_residual = config.has_parallel_residual,
                .is_norm_after = config.norm_place == NormPlace::kAfter,
                .skip_of = static_cast<int>(config.skip_of(index)),
                .value_table = static_cast<int>(config.value_table_of(index)),
                .mlp = config.mlp,
                .attention_site = static_cast<uint32_t>(2 * index + 1),
                .mlp_site = static_cast<uint32_t>(2 * index + 2)};
  const auto declare = [&](LinearSpec spec) {
    spec.unit = unit;
    spec.prefix = l.prefix + spec.prefix;
    LinearLayer layer = declare_linear(params, spec, tp);
    if (config.lora.adapts(spec.prefix)) declare_adapter(layer, params, spec, config.lora, tp);
    return layer;
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
  const auto declare_scalar = [&](const char* name, Init init) {
    return params.add(
        {.name = l.prefix + name, .shape = {1}, .role = ParamRole::kScalar, .init = init, .unit = unit});
  };
  const auto declare_attention = [&] {
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
                  .rotates_all = config.rotated_dims() == D,
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
    if (config.value_embeddings > 0) l.value_mix.a = declare_scalar("attention.value_mix.own", Init::kHalf);
    if (l.value_table >= 0) l.value_mix.b = declare_scalar("attention.value_mix.table", Init::kHalf);
  };
  if (l.skip_of >= 0) l.skip_mix.b = declare_scalar("mix.skip", Init::kOne);
  if (config.has_input_mix)
    l.input_mix = {declare_scalar("mix.stream", Init::kOne), declare_scalar("mix.input", Init::kZero)};
  if (l.has_attention) declare_attention();
  if (!l.has_attention || !l.has_parallel_residual)
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
  if (l.has_attention)
    for (LinearLayer* layer : {&l.qkv, &l.proj}) use_fp8(*layer, params, fp8, tp, fp8_tensors);
  for (LinearLayer* layer : {&l.up, &l.down}) use_fp8(*layer, params, fp8, tp, fp8_tensors);
  return l;
}

namespace {

ValueId attention_half(Builder& b, ValueId h, const StreamValues& s, const BlockLayers& l) {
  ValueId qkv = linear(b, h, l.qkv);
  if (l.value_mix.a >= 0) {
    const ValueId table = l.value_table < 0 ? kNoValue : s.values[static_cast<size_t>(l.value_table)];
    qkv = mix_values(b, qkv, table, l.value_mix, l.attention.heads);
  }
  qkv = rotate(b, qkv, l.rotation);
  return linear(b, attention(b, qkv, l.attention), l.proj);
}

ValueId mlp_half(Builder& b, ValueId h, const BlockLayers& l) {
  const ValueId pre = linear(b, h, l.up);
  const ValueId act = l.mlp == Activation::kSwiglu ? swiglu(b, pre) : activate(b, pre, l.mlp, l.up.bias);
  return linear(b, act, l.down);
}

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

void block(Builder& b, StreamValues& s, const BlockLayers& l) {
  const auto enter = [&](Half half, const char* name) {
    Scope scope = l.scope;
    scope.half = half;
    b.enter(scope, l.prefix + name);
  };
  enter(l.has_attention ? Half::kAttention : Half::kMlp, "");
  if (l.skip_of >= 0) s.x = mix(b, s.x, s.skips[static_cast<size_t>(l.skip_of)], l.skip_mix);
  if (l.input_mix.a >= 0) s.x = mix(b, s.x, s.input, l.input_mix);
  if (l.has_attention && l.has_parallel_residual) {
    enter(Half::kAttention, "attention.");
    const ValueId h = norm(b, s.x, l.attention_norm);
    const ValueId sum = add(b, s.x, dropout(b, attention_half(b, h, s, l), l.attention_site));
    enter(Half::kMlp, "mlp.");
    s.x = add(b, sum, dropout(b, mlp_half(b, h, l), l.mlp_site));
    return;
  }
  if (l.has_attention) {
    enter(Half::kAttention, "attention.");
    s.x = half(b, s.x, l.attention_norm, l.is_norm_after, l.attention_site,
               [&](ValueId h) { return attention_half(b, h, s, l); });
  }
  enter(Half::kMlp, "mlp.");
  s.x = half(b, s.x, l.mlp_norm, l.is_norm_after, l.mlp_site, [&](ValueId h) { return mlp_half(b, h, l); });
}

}  // namespace ingot
