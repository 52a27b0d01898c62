#include "ingot/config/data_shard.h"

#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "ingot/core/error.h"

namespace ingot {
namespace {

// Returns the number of groups that the ranks form. In every step each group gets whole micro-batches, and
// the ranks of a group split each of them by rows.
int64_t ranks_with_micros(const TrainConfig& config, int64_t ranks) {
  int64_t common = std::gcd(ranks, config.grad_accum);
  for (const BatchStage& stage : config.batch_ramp) common = std::gcd(common, stage.micro_batches);
  return common;
}

bool can_deal_out(const TrainConfig& config, int64_t ranks) {
  return config.batch_size % (ranks / ranks_with_micros(config, ranks)) == 0;
}

// Returns the nearest valid numbers of ranks, at most one below and one above. 1 is always valid.
std::string nearest_ranks(const TrainConfig& config, int64_t ranks) {
  std::string text;
  for (int64_t below = ranks - 1; below >= 1 && text.empty(); --below)
    if (can_deal_out(config, below)) text = fmt::format("{}", below);
  for (int64_t above = ranks + 1; above <= config.batch_size * config.grad_accum; ++above)
    if (can_deal_out(config, above)) return text + fmt::format(" or {}", above);
  return text;
}

}  // namespace

DataShard DataShard::of(const TrainConfig& config, int64_t ranks, int64_t rank) {
  if (!can_deal_out(config, ranks))
    fail(
        ErrorKind::kUsage,
        "parallel: a step of {} micro-batches (train.grad_accum{}) of {} sequences (train.batch_size) cannot "
        "be dealt out to {} ranks (parallel.dp x parallel.fsdp); the nearest that can are {}",
        config.grad_accum, config.batch_ramp.empty() ? "" : ", and fewer by train.batch_ramp",
        config.batch_size, ranks, nearest_ranks(config, ranks));
  return {.ranks = ranks,
          .rank = rank,
          .batch_size = config.batch_size / (ranks / ranks_with_micros(config, ranks)),
          .global_batch = config.batch_size};
}

}  // namespace ingot
