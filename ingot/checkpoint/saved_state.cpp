#include "ingot/checkpoint/saved_state.h"

#include <cstring>

#include "ingot/core/copy.h"
#include "ingot/core/error.h"
#include "ingot/core/memory_hash.h"
#include "ingot/ops/bf16_masters.h"

namespace ingot {
namespace {

Replicas replicas_of(const Optimizer::State& state, const TrainingStore& params) {
  switch (state.scope) {
    case Optimizer::ReplicaScope::kNone:
      return params.replicas(state.param).count == 0 ? Replicas{0, 0} : Replicas{1, 0};
    case Optimizer::ReplicaScope::kReplicas:
      return params.replicas(state.param);
    case Optimizer::ReplicaScope::kShardGroup:
      return params.shard_group(state.param);
  }
  return {};
}

Tensor rows_of(const Tensor& t, Range range) { return t ? t.rows(range.begin, range.end) : Tensor{}; }

}  // namespace

SavedState::SavedState(Trainer& trainer) : trainer_(trainer) {
  TrainingStore& params = trainer.params();
  for (const ParamShard& shard : params.shards()) {
    const Range range = params.written(shard);
    weights_[shard.id] = {shard, range, rows_of(shard.w, range), rows_of(shard.tail, range)};
  }
  for (const Optimizer::State& state : trainer.state().optimizer.states()) {
    const int64_t n = state.tensor.elements();
    const Replicas holders = replicas_of(state, params);
    const int64_t saved = trainer.state().optimizer.saved_elements(state);
    const Range range = holders.count == 0 ? Range{0, 0} : split_range(saved, holders.count, holders.index);
    states_.push_back({range, state.tensor.reshape({n}).rows(range.begin, range.end)});
  }
}

size_t SavedState::copy_bytes() const {
  size_t bytes = 0;
  for_each_tensor(*this, [&](const Tensor& t) { bytes += t ? t.bytes() + Arena::kDeviceAlign : 0; });
  return bytes;
}

void SavedState::copy_to(Arena& room) {
  Stream& stream = *trainer_.layout().stream;
  bool is_on_device = false;
  for_each_tensor(*this, [&](Tensor& t) {
    if (!t) return;
    const Tensor to = room.alloc(t.dtype, t.shape);
    if (t.device == Device::kCpu) {
      std::memcpy(to.data, t.data, t.bytes());
    } else {
      is_on_device = true;
      copy(to, t, stream);
    }
    t = to;
  });
  if (is_on_device) synchronize(stream);
  copy_hash_ = copy_hash();
}

uint64_t SavedState::copy_hash() const {
  uint64_t hash = 0;
  for_each_tensor(*this, [&](const Tensor& t) {
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
    if (t) hash = hash * kOdd + memory_hash({static_cast<const std::byte*>(t.data), t.bytes()});
  });
  return hash;
}

void SavedState::require_intact_copy() const {
  if (copy_hash_ && copy_hash() != *copy_hash_)
    throw Error("a bit of the copied state changed in memory while the checkpoint was written",
                ErrorKind::kData);
}

Tensor SavedState::on_host(const Tensor& t, Staging& staging) {
  return t.device == Device::kCpu ? t : staging.read(t, *trainer_.layout().stream);
}

Tensor SavedState::values(int id) {
  const Weight& weight = weights_.at(id);
  const Tensor w = on_host(weight.w, staging_);
  if (weight.w.dtype == DType::f32) return w;
  const Tensor tail = weight.tail ? on_host(weight.tail, tail_staging_) : Tensor{};
  expanded_.resize(static_cast<size_t>(w.elements()));
  const Tensor values(expanded_.data(), DType::f32, {w.elements()});
  Stream cpu;  // the trainer may be using its own stream
  expand_masters(values, w, tail, cpu);
  return values;
}

}  // namespace ingot
