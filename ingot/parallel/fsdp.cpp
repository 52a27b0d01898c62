#include "ingot/parallel/fsdp.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/ops/accumulate.h"
#include "ingot/ops/bf16_masters.h"
#include "ingot/ops/cast.h"

namespace ingot {

FsdpStore::~FsdpStore() {
  end_reductions();
  for (Slot& slot : slots_) {
    slot.gather.wait();
    slot.frozen_gather.wait();
  }
  for (GradSlot& slot : grad_slots_) slot.scatter.wait();
}

// Returns this rank's shard of a unit's gathered buffer.
Tensor FsdpStore::own_shard(const Tensor& full, int64_t shard) const {
  return full.rows(shard_.rank() * shard, (shard_.rank() + 1) * shard);
}

void FsdpStore::start_gather(int u) {
  if (state_.is_stale) forget_gathered();
  Unit& unit = units_[static_cast<size_t>(u)];
  Slot& slot = slots_[unit.slot];
  int& held = state_.weights[unit.slot];
  if (held == u) return;
  slot.gather.wait();  // a prefetched unit may never have been used
  slot.frozen_gather.wait();
  held = u;
  slot.is_gathering = true;
  if (unit.frozen_shard > 0) {
    const Tensor full = slot.frozen.rows(0, shard_.size() * unit.frozen_shard),
                 own = own_shard(full, unit.frozen_shard);
    copy(own, unit.frozen, stream_);
    slot.frozen_gather = shard_.start_all_gather_into(unit.gather_name + ", frozen", full, own);
  }
  if (unit.shard == 0) return;
  const Tensor full = slot.full.rows(0, shard_.size() * unit.shard), own = own_shard(full, unit.shard);
  if (own.dtype == unit.master.dtype)
    copy(own, unit.master, stream_);
  else
    cast(own, unit.master, stream_);
  slot.gather = shard_.start_all_gather_into(unit.gather_name, full, own);
}

void FsdpStore::wait_gather(size_t i) {
  Slot& slot = slots_[i];
  if (!slot.is_gathering) return;
  slot.gather.wait();
  slot.frozen_gather.wait();
  slot.is_gathering = false;
  const int u = state_.weights[i];
  const UnitBuffers& buffers = units_[static_cast<size_t>(u)].buffers;
  if (is_in_f32(u)) cast(buffers.compute, buffers.master, stream_);
}

// The model prefetches units in the order in which it will use them, forwards or backwards, one at a time; a
// block may be skipped.
void FsdpStore::prefetch(int unit) {
  const int step = unit > state_.prefetched ? 1 : -1;
  const bool continues = unit != state_.prefetched && std::abs(unit - state_.prefetched) <= 2;
  const int first = continues ? state_.prefetched + step : unit, end = unit + 2 * step;
  state_.prefetched = unit;
  for (int u = first; u != end; u += step)
    if (u >= 0 && u < held().units() &&
        units_[static_cast<size_t>(u)].shard + units_[static_cast<size_t>(u)].frozen_shard > 0)
      start_gather(u);
}

void FsdpStore::wait_weights(int u) {
  start_gather(u);
  const Span span(stream_.trace, "communication");
  wait_gather(units_[static_cast<size_t>(u)].slot);
}

bool FsdpStore::has_weights(int u) const {
  const size_t slot = units_[static_cast<size_t>(u)].slot;
  return !state_.is_stale && state_.weights[slot] == u && !slots_[slot].is_gathering;
}

// A slot has a unit's gradients from the first time that it is opened until they are scattered: the head's of
// all micro-batches whose forward precedes the first backward, every other unit's of one micro-batch.
OldGradients FsdpStore::open_gradients(int u) {
  const size_t i = units_[static_cast<size_t>(u)].grad_slot;
  int& held = state_.gradients[i];
  if (held == u && !grad_slots_[i].is_scattering) return OldGradients::kNone;
  INGOT_CHECK(held < 0 || grad_slots_[i].is_scattering,
              "FsdpStore: unit {} would overwrite the gradients of unit {}", u, held);
  const Span span(stream_.trace, "communication");
  drain(i);
  held = u;
  return OldGradients::kAll;
}

void FsdpStore::start_reduction(int u) {
  const Unit& unit = units_[static_cast<size_t>(u)];
  GradSlot& slot = grad_slots_[unit.grad_slot];
  INGOT_CHECK(state_.gradients[unit.grad_slot] == u && !slot.is_scattering,
              "FsdpStore: gradients of unit {} are ready, but not open", u);
  const Tensor full = slot.full.rows(0, shard_.size() * unit.shard);
  slot.is_scattering = true;
  slot.is_last = is_last_micro();
  const Tensor sent = slot.payload ? slot.payload.rows(0, full.elements()) : full;
  if (slot.payload) round_gradients(sent, full, unit.residual, stream_);
  slot.scatter = exchanges(slot)
                     ? shard_.start_all_to_all(unit.scatter_name, exchanged(slot, unit.shard), sent)
                     : shard_.start_reduce_scatter(unit.scatter_name, own_shard(full, unit.shard), sent);
}

// NCCL would round 16-bit sums after every addition. On a device the ranks therefore exchange their 16-bit
// gradients, which is as many bytes, and each adds those of its shard in f32.
bool FsdpStore::exchanges(const GradSlot& slot) const {
  return stream_.device == Device::kCuda && static_cast<bool>(slot.payload);
}

// The place of what the ranks send: the memory of the f32 gradients, which are in the payload by then.
Tensor FsdpStore::exchanged(const GradSlot& slot, int64_t shard) const {
  return Tensor(slot.full.data, slot.payload.dtype, {shard_.size() * shard}, slot.full.device);
}

// Adds the reduce-scattered gradients to the shard, or writes them over those of the last step.
void FsdpStore::drain(size_t i) {
  GradSlot& slot = grad_slots_[i];
  if (!slot.is_scattering) return;
  slot.scatter.wait();
  const auto u = static_cast<size_t>(std::exchange(state_.gradients[i], -1));
  Unit& unit = units_[u];
  std::vector<bool>::reference has_sum = state_.has_gradients[u];
  const auto add = [&](const Tensor& part) {
    if (has_sum)
      accumulate(unit.grad, part, stream_);
    else if (part.dtype == DType::f32)
      copy(unit.grad, part, stream_);
    else
      cast(unit.grad, part, stream_);
    has_sum = true;
  };
  if (exchanges(slot))
    for (int rank = 0; rank < shard_.size(); ++rank)
      add(exchanged(slot, unit.shard).rows(rank * unit.shard, (rank + 1) * unit.shard));
  else
    add(own_shard(slot.full, unit.shard));
  slot.is_scattering = false;
  if (slot.is_last) complete(static_cast<int>(u));
}

void FsdpStore::drain_all() {
  for (size_t i = 0; i < grad_slots_.size(); ++i) drain(i);
}

std::vector<GradientSum> FsdpStore::memory_sums() const {
  std::vector<GradientSum> sums;
  for (const Unit& unit : units_) sums.push_back({.group = shard_.name(), .memory = unit.grad});
  return sums;
}

void FsdpStore::wait_memory() {
  for (size_t i = 0; i < slots_.size(); ++i) wait_gather(i);
  drain_all();
}

void FsdpStore::end_memory_step() {
  const Span span(stream_.trace, "communication");
  drain_all();
  for (size_t u = 0; u < units_.size(); ++u)
    if (!state_.has_gradients[u]) fill_zero(units_[u].grad, stream_);
  state_.is_stale = true;  // the update comes next
}

void FsdpStore::refresh_compute(Stream& stream) {
  state_.is_stale = true;
  if (config_.has_f32_masters) return;
  for (const Unit& unit : units_) collapse_masters(unit.master, {}, unit.grad, stream);
}

void FsdpStore::expand_masters(Stream& stream) {
  if (config_.has_f32_masters) return;
  state_.is_stale = true;  // the caller may write the shards
  for (const Unit& unit : units_) ingot::expand_masters(unit.grad, unit.master, {}, stream);
}

void FsdpStore::begin_graphs() {
  drop_gathered();
  state_.prefetched = 0;
  state_.is_stale = true;
}

void FsdpStore::drop_gathered() {
  for (Slot& slot : slots_) {
    slot.gather.wait();
    slot.frozen_gather.wait();
    slot.is_gathering = false;
  }
  state_.weights.assign(slots_.size(), -1);
}

void FsdpStore::forget_gathered() {
  state_.is_stale = false;
  drop_gathered();
  if (config_.compute == DType::f32) return;
  // Each element of a vector comes from the one rank that holds it; the other ranks add zeros.
  for (Unit& unit : units_)
    if (unit.vectors) fill_zero(unit.vectors, stream_);
  for (const ParamShard& shard : held_shards()) {
    const ParamSpec& spec = held()[shard.id];
    if (!spec.is_vector()) continue;
    const Tensor& vectors = units_[static_cast<size_t>(spec.unit)].vectors;
    if (!vectors) continue;
    const int64_t first = spec.vector_offset + shard.begin;
    copy(vectors.rows(first, first + shard.elements()), shard.w, stream_);
  }
  for (Unit& unit : units_)
    if (unit.vectors) shard_.all_reduce("vectors", unit.vectors);
}

Range FsdpStore::range_of(int id, int rank) const {
  const ParamSpec& spec = held()[id];
  const Unit& unit = units_[static_cast<size_t>(spec.unit)];
  const int64_t shard = spec.is_trained ? unit.shard : unit.frozen_shard;
  const int64_t begin = std::clamp<int64_t>(rank * shard - spec.offset, 0, spec.elements());
  const int64_t end = std::clamp<int64_t>((rank + 1) * shard - spec.offset, begin, spec.elements());
  return begin < end ? Range{begin, end} : Range{0, 0};
}

std::vector<GradientBucket> FsdpStore::replica_buckets() const {
  std::vector<GradientBucket> buckets;
  for (int u = 0; u < held().units(); ++u) {
    const Unit& unit = units_[static_cast<size_t>(u)];
    if (unit.shard == 0) continue;  // on another pipeline stage
    buckets.push_back({.first_unit = u,
                       .last_unit = u,
                       .grad = unit.grad,
                       .payload = unit.replica_payload,
                       .name = fmt::format("replicas' gradients {}", u)});
  }
  return buckets;
}

std::vector<ParamShard> FsdpStore::held_shards() {
  std::vector<ParamShard> shards;
  for (size_t p = 0; p < held().specs().size(); ++p) {
    const int id = static_cast<int>(p);
    const ParamSpec& spec = held()[id];
    if (!spec.is_trained) continue;
    const Unit& unit = units_[static_cast<size_t>(spec.unit)];
    const Range range = range_of(id, shard_.rank());
    const bool is_empty = range.begin == range.end;
    const int64_t first = is_empty ? 0 : spec.offset + range.begin - shard_.rank() * unit.shard;
    const int64_t end = first + range.end - range.begin, vectors = spec.vector_offset;
    const bool is_own_vector = spec.is_vector() && unit.own_vectors;
    shards.push_back({.id = id,
                      .begin = range.begin,
                      .end = range.end,
                      .w = is_own_vector ? unit.own_vectors.rows(vectors + range.begin, vectors + range.end)
                                         : unit.master.rows(first, end),
                      .tail = {},
                      .compute = {},
                      .grad = unit.grad.rows(first, end),
                      .is_overwritten = true});
  }
  return shards;
}

std::vector<ParamShard> FsdpStore::frozen_shards() {
  std::vector<ParamShard> shards;
  for (size_t p = 0; p < held().specs().size(); ++p) {
    const int id = static_cast<int>(p);
    const ParamSpec& spec = held()[id];
    if (spec.is_trained) continue;
    const Unit& unit = units_[static_cast<size_t>(spec.unit)];
    const bool is_whole = spec.is_vector() || config_.keeps_units;
    const Range range = is_whole ? Range{0, spec.elements()} : range_of(id, shard_.rank());
    const Tensor& memory = spec.is_vector()      ? unit.buffers.frozen_vectors
                           : config_.keeps_units ? unit.buffers.frozen
                                                 : unit.frozen;
    const int64_t place = spec.is_vector() ? spec.vector_offset : spec.offset;
    const int64_t first = range.begin == range.end ? 0
                          : is_whole               ? place
                                                   : place + range.begin - shard_.rank() * unit.frozen_shard;
    shards.push_back({.id = id,
                      .begin = range.begin,
                      .end = range.end,
                      .w = memory.rows(first, first + range.end - range.begin),
                      .tail = {},
                      .compute = {},
                      .grad = {}});
  }
  return shards;
}

}  // namespace ingot
