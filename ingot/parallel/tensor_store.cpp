#include "ingot/parallel/tensor_store.h"

namespace ingot {

TensorStore::TensorStore(TrainingStore& parts, Communicator& group)
    : TrainingStore(parts.list(), parts.masters()), parts_(parts), group_(group) {
  arenas_ = parts.arenas();
  is_sharded_ = true;
}

Holders TensorStore::copies(int id) const {
  const Holders parts = parts_.copies(id);
  if (list()[id].is_sharded()) return parts;
  return {group_.size() * parts.count, group_.rank() * parts.count + parts.index};
}

Holders TensorStore::sharers(int id) const {
  const Holders parts = parts_.sharers(id);
  return {group_.size() * parts.count, group_.rank() * parts.count + parts.index};
}

}  // namespace ingot
