// The layers of a whole model, and the values that its blocks hand on.
#pragma once

#include <string>
#include <vector>

#include "ingot/nn/models/block.h"
#include "ingot/nn/primitives/ends.h"
#include "ingot/nn/primitives/message.h"

namespace ingot {

struct ModelLayers {
  EmbeddingSpec embedding;
  std::vector<EmbeddingSpec> value_tables;
  bool has_embedding_norm = false, has_input_mix = false;
  NormSpec embedding_norm, final_norm;
  std::vector<BlockLayers> blocks;
  int head = -1;                         // the table of an untied head
  std::vector<std::string> fp8_tensors;  // of the linears

  int head_unit() const { return static_cast<int>(blocks.size()) + 1; }
  // The parameter that the head multiplies by.
  int head_weight() const { return head >= 0 ? head : embedding.table; }
};

// Declares all parameters of a model. REQUIRES: the config is resolved.
ModelLayers declare_model(ParamList& params, const ModelConfig& config, const TensorParallel& tp,
                          const Fp8LinearConfig& fp8);

// The parameters of a resolved config on one tensor-parallel rank.
ParamList parameters_of(const ModelConfig& config, const TensorParallel& tp = {});
// The elements of a whole parameter, without the padding of tables.
int64_t elements_without_padding(const ParamSpec& spec);

// Adds the operations of the embedding; returns what the first block reads.
StreamValues begin_stream(Builder& b, const ModelLayers& layers);

// Adds the operations of a block.
void run_block(Builder& b, StreamValues& s, const ModelLayers& layers, size_t block);

// What blocks from `block` on, or the head, read of what came before: x, and in some models more.
std::vector<Packed> values_before(const BuildSpec& spec, const ModelLayers& layers, size_t block);
// The message between two stages, of which the second begins with `block`: x itself, or a pack of several values.
ValueId message_of(Builder& b, const StreamValues& s, const ModelLayers& layers, size_t block);
StreamValues read_message(Builder& b, ValueId message, const ModelLayers& layers, size_t block);

}  // namespace ingot
