#include "ingot/parallel/pipeline_store.h"

#include "ingot/comm/device_group.h"

namespace ingot {

PipelineStore::PipelineStore(const ParamList& list, TrainingStore& own, StagePlan plan, Communicator& group,
                             Stream& stream)
    : TrainingStore(list, own.masters()), own_(own), plan_(std::move(plan)), group_(group) {
  ends_ = group.split(keeps_shared() ? 0 : 1, group.rank(), "pp ends");
  if (plan_.is_tied && keeps_shared() && stream.device == Device::kCuda && stream.backing == Backing::kMemory)
    device_ends_ = device_group(*ends_, stream);
  arenas_ = own.arenas();
  is_sharded_ = group.size() > 1;
}

void PipelineStore::begin_micro(bool is_last) {
  is_last_micro_ = is_last;
  own_.begin_micro(is_last);
}

void PipelineStore::finish_gradients() {
  own_.finish_gradients();
  if (!is_last_micro_ || !keeps_shared()) return;
  Communicator& ends = device_ends_ ? *device_ends_ : *ends_;
  for (const ParamShard& shard : own_.shards())
    if (plan_.is_shared(list()[shard.id].unit)) ends.all_reduce("tied gradients", shard.grad);
}

std::vector<ParamShard> PipelineStore::shards() {
  std::vector<ParamShard> shards = own_.shards();
  for (ParamShard& shard : shards)
    if (plan_.is_shared(list()[shard.id].unit)) shard.is_counted = group_.rank() == 0;
  return shards;
}

}  // namespace ingot
