#include "ingot/parallel/tensor_store.h"

#include <algorithm>

namespace ingot {

TensorStore::TensorStore(TrainingStore& own, Communicator& group, Communicator* head_group)
    : TrainingStore(own.list(), own.masters()), own_(own), group_(group), head_group_(head_group) {
  arenas_ = own.arenas();
  is_sharded_ = true;
}

void TensorStore::begin_micro(bool is_last) {
  is_last_micro_ = is_last;
  own_.begin_micro(is_last);
}

void TensorStore::finish_gradients() {
  own_.finish_gradients();
  if (!is_last_micro_ || !head_group_) return;
  std::vector<Pending> sums;
  for (const ParamShard& shard : own_.shards()) {
    const ParamSpec& spec = list()[shard.id];
    const int64_t first = std::max(shard.begin, spec.elements() - spec.common_elements());
    if (first < shard.end)
      sums.push_back(head_group_->start_all_reduce("gradients of shared heads",
                                                   shard.grad.rows(first - shard.begin, shard.elements())));
  }
  for (Pending& sum : sums) sum.wait();
}

Replicas TensorStore::replicas(int id) const {
  const Replicas same = own_.replicas(id);
  if (list()[id].is_sharded()) return same;
  return {group_.size() * same.count, group_.rank() * same.count + same.index};
}

Replicas TensorStore::shard_group(int id) const {
  const Replicas same = own_.shard_group(id);
  return {group_.size() * same.count, group_.rank() * same.count + same.index};
}

}  // namespace ingot
