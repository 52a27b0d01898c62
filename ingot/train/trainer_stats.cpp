// Statistics of a trainer: the norms of its parameters, and the memory it has allocated.
#include <cmath>

#include "ingot/train/trainer.h"

namespace ingot {

// The norms of a sharded parameter come from the sums of squares over all ranks.
std::vector<ParamStats> Trainer::stats() {
  std::vector<ParamStats> stats(optimizer_.stats().begin(), optimizer_.stats().end());
  for (ParamStats& s : stats) s.grad_norm /= clip_;  // the optimizer saw clipped gradients
  if (!params_.is_sharded()) return stats;
  std::vector<double> sums;
  for (size_t p = 0; p < stats.size(); ++p) {
    const ParamStats& s = stats[p];
    const double count = optimizer_.is_counted(p) ? 1 : 0;
    for (double sum : {s.weight_norm * s.weight_norm, s.grad_norm * s.grad_norm,
                       s.update_norm * s.update_norm, s.update_dot_weight})
      sums.push_back(count * sum);
  }
  reducers().weights.sum(sums);
  for (size_t p = 0; p < stats.size(); ++p)
    stats[p] = {.name = stats[p].name,
                .weight_norm = std::sqrt(sums[4 * p]),
                .grad_norm = std::sqrt(sums[4 * p + 1]),
                .update_norm = std::sqrt(sums[4 * p + 2]),
                .update_dot_weight = sums[4 * p + 3]};
  return stats;
}

std::vector<Trainer::ArenaUse> Trainer::arenas() const {
  std::vector<ArenaUse> uses;
  std::vector<const Arena*> arenas = params_.arenas();
  const Arena* activations = stages_ ? &stages_->arena() : &activations_;
  for (const Arena* own : {&optimizer_.arena(), &optimizer_.scratch(), activations, &scratch_})
    arenas.push_back(own);
  for (const Arena* arena : feed_.arenas()) arenas.push_back(arena);
  if (results_ring_)
    for (const Arena* arena : results_ring_->arenas()) arenas.push_back(arena);
  for (const Arena* arena : arenas) uses.push_back({arena->name(), arena->capacity_bytes(), arena->memory()});
  return uses;
}

}  // namespace ingot
