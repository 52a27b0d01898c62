#include "ingot/parallel/shard_sum.h"

#include <algorithm>
#include <utility>

namespace ingot {

ShardSum::ShardSum(TrainingStore& store, Communicator& group, std::string name, Elements elements)
    : GradientReduction(When::kStep),
      store_(store),
      group_(group),
      name_(std::move(name)),
      elements_(std::move(elements)) {}

std::vector<GradientSum> ShardSum::sums() const {
  std::vector<GradientSum> sums;
  for (const ParamShard& shard : store_.shards()) {
    const Range range = elements_(store_.list()[shard.id]);
    const int64_t first = std::max(shard.begin, range.begin), end = std::min(shard.end, range.end);
    if (first < end)
      sums.push_back(
          {.group = group_.name(), .memory = shard.grad.rows(first - shard.begin, end - shard.begin)});
  }
  return sums;
}

void ShardSum::start_step() {
  for (const GradientSum& sum : sums()) pending_.push_back(group_.start_all_reduce(name_, sum.memory));
}

void ShardSum::wait() {
  for (Pending& sum : pending_) sum.wait();
  pending_.clear();
}

std::unique_ptr<ShardSum> shared_heads_sum(TrainingStore& store, Communicator& head_group) {
  return std::make_unique<ShardSum>(store, head_group, "gradients of shared heads",
                                    [](const ParamSpec& spec) {
                                      return Range{spec.elements() - spec.common_elements(), spec.elements()};
                                    });
}

std::unique_ptr<ShardSum> tied_sum(TrainingStore& store, const StagePlan& plan, Communicator& ends) {
  return std::make_unique<ShardSum>(store, ends, "tied gradients", [plan](const ParamSpec& spec) {
    return plan.is_shared(spec.unit) ? Range{0, spec.elements()} : Range{0, 0};
  });
}

}  // namespace ingot
