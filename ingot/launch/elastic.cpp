#include "ingot/launch/elastic.h"

#include "ingot/config/data_shard.h"
#include "ingot/core/error.h"
#include "ingot/parallel/parallelize.h"

namespace ingot {
namespace {

bool is_possible(const RunConfig& config) {
  try {
    check_layout(config, static_cast<int>(config.parallel.ranks()));
    DataShard::of(config.train, config.parallel.dp * config.parallel.fsdp, 0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::optional<ParallelConfig> layout_for(const RunConfig& given, int ranks) {
  std::optional<ParallelConfig> best;
  RunConfig config = given;
  ParallelConfig& layout = config.parallel;
  for (int64_t dp = given.parallel.dp; dp >= 1; --dp)
    for (int64_t fsdp = given.parallel.fsdp; fsdp >= 1; --fsdp) {
      if (dp > 1 && fsdp != given.parallel.fsdp) break;
      layout.dp = dp;
      layout.fsdp = fsdp;
      const bool is_better = !best || layout.ranks() > best->ranks();
      if (layout.ranks() <= ranks && is_better && is_possible(config)) best = layout;
    }
  return best;
}

}  // namespace ingot
