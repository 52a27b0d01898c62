#include "ingot/plan/plan.h"

#include <algorithm>

#include "ingot/parallel/parallelize.h"

namespace ingot {

std::vector<ModelPart> model_parts(const ModelConfig& c) {
  const int64_t heads_width = c.heads * c.head_dim;
  const int64_t attention = c.width * c.qkv_width() + heads_width * c.width;
  const int64_t mlp = c.width * c.mlp_in_width() + c.ffn * c.width;
  const int64_t attention_bias = c.has_bias ? c.qkv_width() + c.width : 0;
  const int64_t mlp_bias = c.has_bias ? c.mlp_in_width() + c.width : 0;
  const int64_t gains = c.norm == NormKind::kRmsNormWeightless ? 0 : c.width;
  const int64_t norm = c.norm == NormKind::kLayerNorm && c.has_bias ? 2 * c.width : gains;
  const int64_t positions = c.positions == PositionKind::kLearned ? c.context * c.width : 0;
  const int64_t table = c.vocab * c.width;
  const auto flops = [](int64_t weights) { return 6.0 * static_cast<double>(weights); };
  return {
      {"embedding", table + positions, 0},
      {"attention linears", c.layers * (attention + attention_bias), flops(c.layers * attention)},
      {"attention", 0, flops(c.layers * heads_width * c.context)},
      {"mlp", c.layers * (mlp + mlp_bias), flops(c.layers * mlp)},
      {"norms", c.layers * 2 * norm + norm, 0},
      {"head", c.is_tied ? 0 : table, flops(table)},
  };
}

std::vector<RankMemory> plan_rank_memory(const RunConfig& config) {
  const MeshShape shape = mesh_shape(config.parallel);
  std::vector<RankMemory> ranks;
  const std::vector<int> classes = rank_classes(config, shape);
  for (int rank = 0; rank < shape.size(); ++rank) {
    const auto own = static_cast<size_t>(classes[static_cast<size_t>(rank)]);
    if (own < ranks.size()) {
      ++ranks[own].count;
      continue;
    }
    const MemoryPlan plan = plan_memory(config, shape, rank);
    ranks.push_back({.rank = rank,
                     .count = 1,
                     .items = plan.items,
                     .peak_bytes = plan.host_bytes() + plan.device_bytes()});
  }
  return ranks;
}

}  // namespace ingot
