// The layers of a whole model, and the values that its blocks hand on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ingot/nn/models/block.h"
#include "ingot/nn/primitives/ends.h"
#include "ingot/nn/primitives/message.h"

namespace ingot {

// Operations of a user's own at the end of every block, such as those of examples/cpp/own_layer.cpp.
struct BlockExtension {
  // Declares the parameters of a block, all in the given unit, under names that begin with prefix
  // ("blocks.3."). Returns their ids.
  std::function<std::vector<int>(ParamList&, const ModelConfig&, int unit, const std::string& prefix)>
      declare = {};
  // Adds operations that read the block's output x (n, C), as the residual stream lies on the ranks, and
  // returns what takes its place. They belong to the block's feed-forward half.
  std::function<ValueId(Builder&, ValueId x, const std::vector<int>& params)> add = {};
};

struct ModelLayers {
  EmbeddingSpec embedding;
  std::vector<EmbeddingSpec> value_tables;
  bool has_embedding_norm = false;
  NormSpec embedding_norm, final_norm;
  std::vector<BlockLayers> blocks;
  BlockExtension extension;
  std::vector<std::vector<int>> extension_params;  // by block
  int head = -1;                                   // the table of an untied head
  std::vector<std::string> fp8_tensors;            // their names, in the order of the linears

  int head_unit() const { return static_cast<int>(blocks.size()) + 1; }
  // The parameter that the head multiplies by.
  int head_weight() const { return head >= 0 ? head : embedding.table; }
};

// Declares all parameters of a model. REQUIRES: the config is resolved.
ModelLayers declare_model(ParamList& params, const ModelConfig& config, const TensorParallel& tp,
                          const Fp8LinearConfig& fp8, const BlockExtension& extension = {});

// The parameters of a resolved config on one tensor-parallel rank.
ParamList parameters_of(const ModelConfig& config, const TensorParallel& tp = {});
// The FLOPs per token and weight of the products with a block's matrix.
double flops_per_weight(const ParamList& params, const ParamSpec& matrix);
// The elements of a whole parameter, without the padding of tables.
int64_t elements_without_padding(const ParamSpec& spec);

// Adds the operations of the embedding; returns what the first block reads.
StreamValues begin_stream(Builder& b, const ModelLayers& layers);

// Adds the operations of a block.
void run_block(Builder& b, StreamValues& s, const ModelLayers& layers, size_t block);

// Two stages, of which the second begins with `block`, exchange a message: x, or a pack of x and of all other
// values that blocks from `block` on read. The first function describes it, the others write and read it.
Packed message_before(const BuildSpec& spec, const ModelLayers& layers, size_t block);
ValueId message_of(Builder& b, const StreamValues& s, const ModelLayers& layers, size_t block);
StreamValues read_message(Builder& b, ValueId message, const ModelLayers& layers, size_t block);

}  // namespace ingot
