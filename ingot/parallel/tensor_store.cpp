#include "ingot/parallel/tensor_store.h"

namespace ingot {

TensorStore::TensorStore(TrainingStore& parts, Communicator& group)
    : TrainingStore(parts.list(), parts.masters()), parts_(parts), group_(group) {
  arenas_ = parts.arenas();
  is_sharded_ = true;
}

Replicas TensorStore::replicas(int id) const {
  const Replicas parts = parts_.replicas(id);
  if (list()[id].is_sharded()) return parts;
  return {group_.size() * parts.count, group_.rank() * parts.count + parts.index};
}

Replicas TensorStore::shard_group(int id) const {
  const Replicas parts = parts_.shard_group(id);
  return {group_.size() * parts.count, group_.rank() * parts.count + parts.index};
}

}  // namespace ingot
