// A block of the model: attention and a feed-forward half, as GPT-2, GPT-J, LLaMA, OLMo 2 and the speed run
// have them by ModelConfig.
#pragma once

#include <string>
#include <vector>

#include "ingot/nn/primitives/attention.h"
#include "ingot/nn/primitives/linear.h"
#include "ingot/nn/primitives/mix.h"
#include "ingot/nn/primitives/norm.h"

namespace ingot {

struct BlockLayers {
  Scope scope;
  std::string prefix;  // "blocks.3."
  bool has_attention = true, has_parallel_residual = false, is_norm_after = false;
  MixScalars input_mix = {};  // they mix the residual stream and the first block's input
  MixScalars skip_mix = {};   // they mix the residual stream and the output of block skip_of
  int skip_of = -1;           // -1: the block adds no earlier output
  MixScalars value_mix = {};  // they mix attention's values and the rows of table value_table
  int value_table = -1;       // -1: the block has no value embeddings
  NormSpec attention_norm = {}, mlp_norm = {};
  LinearLayer qkv = {}, proj = {}, up = {}, down = {};
  RotationSpec rotation = {};
  AttentionSpec attention = {};
  Activation mlp = Activation::kSwiglu;
  uint32_t attention_site = 0, mlp_site = 0;  // the halves' dropout sites (layer.h)

  // The linears that the block has.
  std::vector<const LinearLayer*> linears() const {
    if (!has_attention) return {&up, &down};
    return {&qkv, &proj, &up, &down};
  }
  std::vector<int> adapters() const;  // their parameters
};

// The values that blocks hand on. Outside the model's first and last stage a block may need all of them.
struct StreamValues {
  ValueId x = kNoValue;              // the residual stream
  ValueId input = kNoValue;          // (n, C) the first block's input
  std::vector<ValueId> skips = {};   // by block: its output (n, C), if a later block adds it
  std::vector<ValueId> values = {};  // by table: the tokens' value embeddings (N, K D), split by columns
};

// Declares the parameters of block `index`. fp8_tensors: the names of the tensors of its linears that train
// in FP8 are appended.
BlockLayers declare_block(ParamList& params, const ModelConfig& config, int index, const TensorParallel& tp,
                          const Fp8LinearConfig& fp8, std::vector<std::string>& fp8_tensors);

// Adds the block's operations; s.x is the residual stream before and after it.
void block(Builder& b, StreamValues& s, const BlockLayers& layers);

}  // namespace ingot
