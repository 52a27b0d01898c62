#include "ingot/nn/models/model.h"

#include <algorithm>

#include "ingot/nn/primitives/elementwise.h"

namespace ingot {
namespace {

// The spec of a (Vp, C) table, whose rows are sharded over the tensor-parallel ranks.
ParamSpec table_spec(const ModelConfig& config, const TensorParallel& tp, const char* name, ParamRole role,
                     int unit) {
  const int64_t Vp = config.vocab_padded(), C = config.width;
  const bool is_zero = role == ParamRole::kHead && config.projection_init == ProjectionInit::kZero;
  ParamSpec spec{.name = name,
                 .shape = {tp.slice(Vp), C},
                 .role = role,
                 .init = is_zero ? Init::kZero : Init::kNormal,
                 .init_std = role == ParamRole::kHead ? config.head_std() : config.init_std,
                 .padding_rows = Vp - config.vocab,
                 .is_overwritten = role == ParamRole::kHead || config.is_tied,
                 .unit = unit};
  if (tp.count > 1) spec.slice = {.full = {Vp, C}, .rows = {{.first = tp.first(Vp), .count = tp.slice(Vp)}}};
  return spec;
}

// A table (Vp, K D) of value embeddings, whose columns are sharded like the heads of the values.
EmbeddingSpec declare_value_table(ParamList& params, const ModelConfig& config, const TensorParallel& tp,
                                  int64_t index) {
  const int64_t Vp = config.vocab_padded(), full = config.kv_heads * config.head_dim,
                own = tp.slice(config.kv_heads, 1) * config.head_dim;
  ParamSpec spec{.name = fmt::format("value_embeddings.{}.weight", index),
                 .shape = {Vp, own},
                 .role = ParamRole::kEmbedding,
                 .init = Init::kNormal,
                 .init_std = config.init_std,
                 .padding_rows = Vp - config.vocab,
                 .unit = 0};
  if (tp.count > 1)
    spec.slice = {.full = {Vp, full}, .rows = {{.first = 0, .count = Vp}}, .first_column = tp.rank * own};
  return {.table = params.add(std::move(spec)), .Vp = Vp, .C = own, .splits_columns = true};
}

StreamValues empty_stream(const ModelLayers& layers) {
  StreamValues s;
  s.skips.assign(layers.blocks.size(), kNoValue);
  s.values.assign(layers.value_tables.size(), kNoValue);
  return s;
}

bool reads_from(const ModelLayers& layers, size_t block, int BlockLayers::*member, size_t wanted) {
  return std::any_of(layers.blocks.begin() + static_cast<std::ptrdiff_t>(block), layers.blocks.end(),
                     [&](const BlockLayers& reader) { return reader.*member == static_cast<int>(wanted); });
}

// Calls f(value, name, table) for every value that blocks from `block` on, or the head, read of what came
// before, in the order of the message. The table is that of a value embedding, and null for a value (n, C)
// like the residual stream.
template <typename Stream, typename F>
void for_each_handed_on(Stream& s, const ModelLayers& layers, size_t block, F&& f) {
  constexpr const EmbeddingSpec* kNone = nullptr;
  f(s.x, std::string("input"), kNone);
  const bool mixes_input = block < layers.blocks.size() && layers.blocks[block].input_mix.a >= 0;
  if (mixes_input && block > 0) f(s.input, std::string("first input"), kNone);
  for (size_t l = 0; l + 1 < block; ++l)  // the output of the block before is x itself
    if (reads_from(layers, block, &BlockLayers::skip_of, l))
      f(s.skips[l], fmt::format("output of block {}", l), kNone);
  for (size_t i = 0; i < layers.value_tables.size(); ++i)
    if (reads_from(layers, block, &BlockLayers::value_table, i))
      f(s.values[i], fmt::format("value embedding {}", i), &layers.value_tables[i]);
}

std::vector<Packed> values_before(const BuildSpec& spec, const ModelLayers& layers, size_t block) {
  const int64_t N = spec.tokens(), n = spec.tp.rows(N);
  std::vector<Packed> all;
  StreamValues s = empty_stream(layers);
  for_each_handed_on(s, layers, block, [&](ValueId, std::string name, const EmbeddingSpec* table) {
    const bool is_split = spec.tp.count > 1;
    if (table)
      all.push_back({std::move(name), {N, table->C}, is_split ? Placement::kColumns : Placement::kWhole});
    else
      all.push_back(
          {std::move(name), {n, layers.embedding.C}, n < N ? Placement::kTokens : Placement::kWhole});
  });
  return all;
}

}  // namespace

ModelLayers declare_model(ParamList& params, const ModelConfig& config, const TensorParallel& tp,
                          const Fp8LinearConfig& fp8, const BlockExtension& extension) {
  ModelLayers layers{.embedding = {.Vp = config.vocab_padded(), .C = config.width},
                     .value_tables = {},
                     .has_embedding_norm = config.has_embedding_norm,
                     .embedding_norm = {},
                     .final_norm = {},
                     .blocks = {},
                     .extension = extension,
                     .extension_params = {},
                     .fp8_tensors = {}};
  layers.embedding.table = params.add(table_spec(config, tp, "embedding.weight", ParamRole::kEmbedding, 0));
  if (config.positions == PositionKind::kLearned)
    layers.embedding.positions = params.add({.name = "positions.weight",
                                             .shape = {config.context, config.width},
                                             .role = ParamRole::kPosition,
                                             .init = Init::kNormal,
                                             .init_std = config.init_std,
                                             .unit = 0});
  for (int64_t i = 0; i < config.value_embeddings; ++i)
    layers.value_tables.push_back(declare_value_table(params, config, tp, i));
  if (config.has_embedding_norm) layers.embedding_norm = declare_norm(params, 0, "embedding.norm", config);
  for (int l = 0; l < config.layers; ++l) {
    layers.blocks.push_back(declare_block(params, config, l, tp, fp8, layers.fp8_tensors));
    const BlockLayers& block = layers.blocks.back();
    layers.extension_params.push_back(extension.declare
                                          ? extension.declare(params, config, block.scope.unit, block.prefix)
                                          : std::vector<int>{});
  }
  const int unit = layers.head_unit();
  layers.final_norm = declare_norm(params, unit, "head.norm", config);
  if (!config.is_tied)
    layers.head = params.add(table_spec(config, tp, "head.weight", ParamRole::kHead, unit));
  if (config.lora.rank == 0) return layers;
  std::vector<int> adapters;
  for (const BlockLayers& block : layers.blocks)
    for (const int id : block.adapters()) adapters.push_back(id);
  if (adapters.empty())
    fail(ErrorKind::kUsage,
         "lora.targets selects no linear; the first is {}attention.qkv, and the last {}mlp.down",
         layers.blocks.front().prefix, layers.blocks.back().prefix);
  params = params.training(adapters);
  return layers;
}

ParamList parameters_of(const ModelConfig& config, const TensorParallel& tp) {
  ParamList params;
  declare_model(params, config, tp, {});
  return params;
}

int64_t elements_without_padding(const ParamSpec& spec) {
  const Shape& shape = spec.full_shape();
  return spec.is_vector() ? shape.elements() : (shape[0] - spec.padding_rows) * shape[1];
}

int64_t ModelConfig::parameters() const {
  int64_t total = 0;
  const ParamList params = parameters_of(*this);
  for (const ParamSpec& spec : params.specs()) total += elements_without_padding(spec);
  return total;
}

int64_t ModelConfig::trained_parameters() const {
  int64_t total = 0;
  const ParamList params = parameters_of(*this);
  for (const ParamSpec& spec : params.specs()) total += spec.is_trained ? elements_without_padding(spec) : 0;
  return total;
}

namespace {

// Returns the first unit of which backward computes anything. Parameters are in the order of their units.
int first_trained_unit(const ParamList& params) {
  for (const ParamSpec& spec : params.specs())
    if (spec.is_trained) return spec.unit;
  return params.units();
}

}  // namespace

double flops_per_weight(const ParamList& params, const ParamSpec& matrix) {
  return 2 + (matrix.unit >= first_trained_unit(params) ? 2 : 0) + (matrix.is_trained ? 2 : 0);
}

double ModelConfig::flops_per_token() const {
  const ParamList params = parameters_of(*this);
  double flops = (lora.rank > 0 ? 4.0 : 6.0) * static_cast<double>(vocab * width);  // the head's
  for (const ParamSpec& spec : params.specs())
    if (spec.role == ParamRole::kMatrix)
      flops += flops_per_weight(params, spec) * static_cast<double>(spec.full_shape().elements());
  return flops + attention_flops_per_token();
}

double ModelConfig::attention_flops_per_token() const {
  const int first = lora.rank == 0 ? 0 : first_trained_unit(parameters_of(*this));
  double seen = 0;  // twice the mean number of keys, summed over the blocks; a third of it without backward
  for (int64_t l = 0; l < layers; ++l) {
    const int64_t keys = window_of(l) > 0 ? std::min(context, 2 * window_of(l)) : context;
    if (has_attention(l)) seen += static_cast<double>(keys) / (l + 1 < first ? 3 : 1);
  }
  return 6.0 * static_cast<double>(heads * head_dim) * seen;
}

bool LoraConfig::adapts(const std::string& linear) const {
  if (rank == 0) return false;
  return targets.empty() ||
         std::ranges::any_of(targets, [&](const auto& pattern) { return matches_pattern(linear, pattern); });
}

StreamValues begin_stream(Builder& b, const ModelLayers& layers) {
  StreamValues s = empty_stream(layers);
  b.enter({.unit = 0}, "embedding.");
  s.x = dropout(b, embedding(b, layers.embedding), 0);
  if (layers.has_embedding_norm) s.x = norm(b, s.x, layers.embedding_norm);
  s.input = s.x;
  for (size_t i = 0; i < layers.value_tables.size(); ++i) {
    b.enter({.unit = 0}, fmt::format("value_embeddings.{}.", i));
    s.values[i] = embedding(b, layers.value_tables[i]);
  }
  return s;
}

void run_block(Builder& b, StreamValues& s, const ModelLayers& layers, size_t l) {
  block(b, s, layers.blocks[l]);
  if (layers.extension.add) s.x = layers.extension.add(b, s.x, layers.extension_params[l]);
  s.skips[l] = s.x;
}

Packed message_before(const BuildSpec& spec, const ModelLayers& layers, size_t block) {
  const std::vector<Packed> values = values_before(spec, layers, block);
  return values.size() == 1 ? values.front()
                            : Packed{"message", {message_elements(values)}, Placement::kWhole};
}

ValueId message_of(Builder& b, const StreamValues& s, const ModelLayers& layers, size_t block) {
  std::vector<ValueId> values;
  for_each_handed_on(s, layers, block, [&](ValueId id, const auto&...) { values.push_back(id); });
  return values.size() == 1 ? values.front() : pack(b, values, "output");
}

StreamValues read_message(Builder& b, ValueId message, const ModelLayers& layers, size_t block) {
  StreamValues s = empty_stream(layers);
  const std::vector<Packed> described = values_before(b.spec(), layers, block);
  const std::vector<ValueId> values =
      described.size() == 1 ? std::vector<ValueId>{message} : unpack(b, message, described);
  auto next = values.begin();
  for_each_handed_on(s, layers, block, [&](ValueId& place, const auto&...) { place = *next++; });
  if (block == 0) s.input = s.x;
  if (block > 0) s.skips[block - 1] = s.x;
  return s;
}

}  // namespace ingot
