// A block of the model: attention and a feed-forward half, each with a norm, as GPT-2, LLaMA, OLMo 2 and the speed-run variant
// have them by ModelConfig.
#pragma once

#include <string>
#include <vector>

#include "ingot/nn/primitives/attention.h"
#include "ingot/nn/primitives/linear.h"
#include "ingot/nn/primitives/norm.h"

namespace ingot {

struct BlockLayers {
  Scope scope;
  std::string prefix;  // "blocks.3."
  bool is_norm_after = false;
  NormSpec attention_norm = {}, mlp_norm = {};
  LinearLayer qkv = {}, proj = {}, up = {}, down = {};
  RotationSpec rotation = {};
  AttentionSpec attention = {};
  MlpKind mlp = MlpKind::kSwiglu;
  uint32_t attention_site = 0, mlp_site = 0;  // the halves' dropout sites (layer.h)
};

// Declares the parameters of block `index`. fp8_tensors: the names of the tensors of its linears that train in FP8 are appended.
BlockLayers declare_block(ParamList& params, const ModelConfig& config, int index, const TensorParallel& tp,
                          const Fp8LinearConfig& fp8, std::vector<std::string>& fp8_tensors);

// Returns the residual stream after the block.
ValueId block(Builder& b, ValueId x, const BlockLayers& layers);

}  // namespace ingot
