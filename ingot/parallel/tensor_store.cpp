#include "ingot/parallel/tensor_store.h"

namespace ingot {

TensorStore::TensorStore(TrainingStore& own, Communicator& group)
    : TrainingStore(own.list(), own.masters()), own_(own), group_(group) {
  arenas_ = own.arenas();
  is_sharded_ = true;
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
