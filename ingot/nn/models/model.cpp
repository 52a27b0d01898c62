#include "ingot/nn/models/model.h"

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
                 .init_std = config.init_std,
                 .padding_rows = Vp - config.vocab,
                 .unit = 0};
  spec.init = Init::kNormal;
  if (tp.count > 1)
    spec.slice = {.full = {Vp, full}, .rows = {{.first = 0, .count = Vp}}, .first_column = tp.rank * own};
  return {.table = params.add(std::move(spec)), .Vp = Vp, .C = own, .splits_columns = true};
}

// The blocks and the head from `block` on read this of what came before.
struct Needs {
  bool input = false;
  std::vector<size_t> skips, tables;
};

Needs needs_of(const ModelLayers& layers, size_t block) {
  Needs needs{
      .input = layers.has_input_mix && block > 0 && block < layers.blocks.size(), .skips = {}, .tables = {}};
  for (size_t l = 0; l < layers.value_tables.size(); ++l)
    for (size_t reader = block; reader < layers.blocks.size(); ++reader)
      if (layers.blocks[reader].value_table == static_cast<int>(l)) {
        needs.tables.push_back(l);
        break;
      }
  for (size_t reader = block; reader < layers.blocks.size(); ++reader) {
    const int source = layers.blocks[reader].skip_of;
    // The output of the block before is x itself.
    if (source >= 0 && static_cast<size_t>(source) + 1 < block)
      needs.skips.push_back(static_cast<size_t>(source));
  }
  return needs;
}

std::vector<ValueId*> places(StreamValues& s, const Needs& needs) {
  std::vector<ValueId*> all{&s.x};
  if (needs.input) all.push_back(&s.input);
  for (const size_t l : needs.skips) all.push_back(&s.skips[l]);
  for (const size_t l : needs.tables) all.push_back(&s.values[l]);
  return all;
}

StreamValues empty_stream(const ModelLayers& layers) {
  StreamValues s;
  s.skips.assign(layers.blocks.size(), kNoValue);
  s.values.assign(layers.value_tables.size(), kNoValue);
  return s;
}

}  // namespace

ModelLayers declare_model(ParamList& params, const ModelConfig& config, const TensorParallel& tp,
                          const Fp8LinearConfig& fp8, const BlockExtension& extension) {
  ModelLayers layers{.embedding = {.Vp = config.vocab_padded(), .C = config.width},
                     .value_tables = {},
                     .has_embedding_norm = config.has_embedding_norm,
                     .has_input_mix = config.has_input_mix,
                     .embedding_norm = {},
                     .final_norm = {},
                     .blocks = {},
                     .extension = extension,
                     .of_extension = {},
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
    if (extension.declare)
      layers.of_extension.push_back(extension.declare(params, config, block.scope.unit, block.prefix));
  }
  const int unit = layers.head_unit();
  layers.final_norm = declare_norm(params, unit, "head.norm", config);
  if (!config.is_tied)
    layers.head = params.add(table_spec(config, tp, "head.weight", ParamRole::kHead, unit));
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

double ModelConfig::flops_per_token() const {
  int64_t weights = vocab * width;  // of the head
  const ParamList params = parameters_of(*this);
  for (const ParamSpec& spec : params.specs())
    if (spec.role == ParamRole::kMatrix) weights += spec.full_shape().elements();
  return 6.0 * static_cast<double>(weights) + attention_flops_per_token();
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
  if (layers.extension.add)
    s.x = layers.extension.add(b, s.x,
                               l < layers.of_extension.size() ? layers.of_extension[l] : std::vector<int>{});
  s.skips[l] = s.x;
}

std::vector<Packed> values_before(const BuildSpec& spec, const ModelLayers& layers, size_t block) {
  const Needs needs = needs_of(layers, block);
  const int64_t N = spec.tokens(), n = spec.tp.rows(N);
  const Packed stream{.name = "input",
                      .shape = {n, layers.embedding.C},
                      .placement = n < N ? Placement::kTokens : Placement::kWhole};
  std::vector<Packed> all{stream};
  const auto add = [&](std::string name, const Packed& like) {
    all.push_back(like);
    all.back().name = std::move(name);
  };
  if (needs.input) add("first input", stream);
  for (const size_t l : needs.skips) add(fmt::format("output of block {}", l), stream);
  for (const size_t i : needs.tables)
    add(fmt::format("value embedding {}", i),
        {.name = {},
         .shape = {N, layers.value_tables[i].C},
         .placement = spec.tp.count > 1 ? Placement::kColumns : Placement::kWhole});
  return all;
}

ValueId message_of(Builder& b, const StreamValues& s, const ModelLayers& layers, size_t block) {
  StreamValues from = s;
  std::vector<ValueId> values;
  for (const ValueId* place : places(from, needs_of(layers, block))) values.push_back(*place);
  return values.size() == 1 ? values.front() : pack(b, values, "output");
}

StreamValues read_message(Builder& b, ValueId message, const ModelLayers& layers, size_t block) {
  StreamValues s = empty_stream(layers);
  const std::vector<ValueId*> to = places(s, needs_of(layers, block));
  if (to.size() == 1) {
    s.x = message;
  } else {
    const std::vector<ValueId> values = unpack(b, message, values_before(b.spec(), layers, block));
    for (size_t i = 0; i < to.size(); ++i) *to[i] = values[i];
  }
  if (block == 0) s.input = s.x;
  if (block > 0) s.skips[block - 1] = s.x;
  return s;
}

}  // namespace ingot
