#include "ingot/parallel/fsdp.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/ops/accumulate.h"
#include "ingot/ops/bf16_masters.h"
#include "ingot/ops/cast.h"

namespace ingot {
namespace {

int64_t shard_of(int64_t elements, int ranks) {
  const int64_t shards = (elements + ParamList::kAlign - 1) / ParamList::kAlign;
  return (shards + ranks - 1) / ranks * ParamList::kAlign;
}

size_t arena_bytes(int64_t elements, DType dtype, int64_t tensors) {
  return static_cast<size_t>(elements) * size_bytes(dtype) + static_cast<size_t>(tensors) * Arena::kAlign;
}

int64_t sum_of_shards(const ParamList& list, int ranks) {
  int64_t total = 0;
  for (int u = 0; u < list.units(); ++u) total += shard_of(list.unit_elements(u), ranks);
  return total;
}

size_t shards_bytes(const ParamList& list, int ranks, const FsdpConfig& config) {
  const int64_t shards = sum_of_shards(list, ranks);
  if (config.has_f32_masters) return arena_bytes(shards, DType::f32, list.units());
  int64_t vectors = 0;
  for (int u = 0; u < list.units(); ++u) vectors += list.vector_elements(u);
  return arena_bytes(shards, config.compute, list.units()) + arena_bytes(vectors, DType::f32, list.units());
}

size_t vector_bytes(const ParamList& list, const FsdpConfig& config) {
  if (config.compute == DType::f32) return 0;
  int64_t total = 0;
  for (int u = 0; u < list.units(); ++u)
    if (u != config.f32_unit) total += list.vector_elements(u);
  return arena_bytes(total, DType::f32, list.units());
}

constexpr int kWeightSlots = 3, kGradSlots = 2;  // which the blocks share

// Embedding and head have a slot each; the blocks take turns in `slots` of them.
size_t shared_slot(int unit, int units, int slots) {
  if (unit == 0) return 0;
  if (unit == units - 1) return 1;
  return 2 + static_cast<size_t>(unit % slots);
}

// Returns the elements of each slot, enough for the largest unit that uses it. slots: as in shared_slot; 0 if every
// unit has its own.
std::vector<int64_t> slot_elements(const ParamList& list, int ranks, int slots) {
  std::vector<int64_t> elements;
  for (int u = 0; u < list.units(); ++u) {
    const size_t slot = slots > 0 ? shared_slot(u, list.units(), slots) : static_cast<size_t>(u);
    elements.resize(std::max(elements.size(), slot + 1));
    elements[slot] = std::max(elements[slot], ranks * shard_of(list.unit_elements(u), ranks));
  }
  return elements;
}

size_t slot_bytes(const ParamList& list, int ranks, DType dtype, int slots) {
  int64_t total = 0;
  const std::vector<int64_t> elements = slot_elements(list, ranks, slots);
  for (const int64_t n : elements) total += n;
  return arena_bytes(total, dtype, std::ssize(elements));
}

size_t gathered_bytes(const ParamList& list, int ranks, const FsdpConfig& config) {
  size_t bytes = slot_bytes(list, ranks, config.compute, config.keeps_units ? 0 : kWeightSlots);
  if (config.f32_unit >= 0 && config.compute != DType::f32)  // its slot is f32, and it has a copy
    bytes += arena_bytes(ranks * shard_of(list.unit_elements(config.f32_unit), ranks), DType::f32, 1);
  return bytes;
}

// Returns the bytes of what is sent in place of f32 gradients, for each slot and for the replicas, and of the residuals.
size_t payload_bytes(const ParamList& list, int ranks, bool has_replicas, const GradientPayload& payload) {
  if (payload.blocks == DType::f32 && payload.ends == DType::f32) return 0;
  const int64_t padded = ranks * sum_of_shards(list, ranks);
  size_t bytes = slot_bytes(list, ranks, DType::bf16, kGradSlots);
  if (has_replicas) bytes += arena_bytes(padded / ranks, DType::bf16, list.units());
  if (payload.has_error_feedback) bytes += arena_bytes(padded, DType::f32, list.units());
  return bytes;
}

}  // namespace

FsdpStore::FsdpStore(const ParamList& list, Communicator& shard, const FsdpConfig& config, Stream& stream)
    : TrainingStore(list, config.has_f32_masters ? Masters::kF32 : Masters::kNone),
      shard_(shard),
      config_(config),
      stream_(stream),
      shards_("parameters", shards_bytes(list, shard.size(), config), memory_of(stream.device),
              stream.backing),
      grads_("gradients", arena_bytes(sum_of_shards(list, shard.size()), DType::f32, list.units()),
             memory_of(stream.device), stream.backing),
      vectors_("vectors", vector_bytes(list, config), memory_of(stream.device), stream.backing),
      copies_("gathered units", gathered_bytes(list, shard.size(), config), memory_of(stream.device),
              stream.backing),
      full_grads_("gathered gradients", slot_bytes(list, shard.size(), DType::f32, kGradSlots),
                  memory_of(stream.device), stream.backing),
      payloads_("gradient payload", payload_bytes(list, shard.size(), config.has_replicas, config.payload),
                memory_of(stream.device), stream.backing) {
  config.payload.validate();
  INGOT_CHECK(config.has_f32_masters || (config.compute == DType::bf16 && config.f32_unit < 0),
              "FsdpStore: shards without f32 masters need a bf16 model without an f32 unit");
  is_sharded_ = shard.size() > 1;
  begin_step();  // the shards have no gradients
  cut_units();
  make_slots();
  arenas_ = {&shards_, &grads_, &vectors_, &copies_, &full_grads_};
  if (payloads_.capacity_bytes() > 0) arenas_.push_back(&payloads_);
}

FsdpStore::~FsdpStore() {
  end_reductions();
  for (Slot& slot : slots_) slot.gather.wait();
  for (GradSlot& slot : grad_slots_) slot.scatter.wait();
}

void FsdpStore::cut_units() {
  const bool has_vectors = config_.compute != DType::f32;
  for (int u = 0; u < held().units(); ++u) {
    Unit unit;
    unit.shard = shard_of(held().unit_elements(u), shard_.size());
    unit.master = shards_.alloc(config_.has_f32_masters ? DType::f32 : config_.compute, {unit.shard});
    if (!config_.has_f32_masters) unit.own_vectors = shards_.alloc(DType::f32, {held().vector_elements(u)});
    unit.grad = grads_.alloc(DType::f32, {unit.shard});
    if (has_vectors && !is_in_f32(u)) unit.vectors = vectors_.alloc(DType::f32, {held().vector_elements(u)});
    unit.slot = config_.keeps_units ? static_cast<size_t>(u) : shared_slot(u, held().units(), kWeightSlots);
    unit.grad_slot = shared_slot(u, held().units(), kGradSlots);
    unit.gather_name = fmt::format("gather unit {}", u);
    unit.scatter_name = fmt::format("scatter gradients {}", u);
    if (const DType payload = config_.payload.of_unit(u, held().units()); payload != DType::f32) {
      if (config_.payload.has_error_feedback)
        unit.residual = payloads_.alloc(DType::f32, {shard_.size() * unit.shard});
      if (config_.has_replicas) unit.replica_payload = payloads_.alloc(payload, {unit.shard});
    }
    units_.push_back(std::move(unit));
  }
}

void FsdpStore::make_slots() {
  const size_t f32_slot =
      config_.f32_unit >= 0 ? units_[static_cast<size_t>(config_.f32_unit)].slot : SIZE_MAX;
  for (const int64_t n : slot_elements(held(), shard_.size(), config_.keeps_units ? 0 : kWeightSlots)) {
    const DType dtype = slots_.size() == f32_slot ? DType::f32 : config_.compute;
    slots_.push_back({.full = copies_.alloc(dtype, {n}), .gather = {}});
  }
  state_.weights.assign(slots_.size(), -1);
  for (const int64_t n : slot_elements(held(), shard_.size(), kGradSlots))
    grad_slots_.push_back({.full = full_grads_.alloc(DType::f32, {n}), .payload = {}, .scatter = {}});
  state_.gradients.assign(grad_slots_.size(), -1);
  for (int u = 0; u < held().units(); ++u) {
    Unit& unit = units_[static_cast<size_t>(u)];
    const int64_t n = held().unit_elements(u);
    const Tensor gathered = slots_[unit.slot].full.rows(0, n);
    unit.buffers.compute = is_in_f32(u) ? copies_.alloc(config_.compute, {n}) : gathered;
    unit.buffers.master = unit.vectors ? unit.vectors : gathered;
    GradSlot& grads = grad_slots_[unit.grad_slot];
    unit.buffers.grad = grads.full.rows(0, n);
    const DType payload = config_.payload.of_unit(u, held().units());
    if (payload != DType::f32 && !grads.payload) grads.payload = payloads_.alloc(payload, grads.full.shape);
  }
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
  held = u;
  const Tensor full = slot.full.rows(0, shard_.size() * unit.shard), own = own_shard(full, unit.shard);
  if (own.dtype == unit.master.dtype)
    copy(own, unit.master, stream_);
  else
    cast(own, unit.master, stream_);
  slot.gather = shard_.start_all_gather_into(unit.gather_name, full, own);
  slot.is_gathering = true;
}

void FsdpStore::wait_gather(size_t i) {
  Slot& slot = slots_[i];
  if (!slot.is_gathering) return;
  slot.gather.wait();
  slot.is_gathering = false;
  const int u = state_.weights[i];
  const UnitBuffers& buffers = units_[static_cast<size_t>(u)].buffers;
  if (is_in_f32(u)) cast(buffers.compute, buffers.master, stream_);
}

// The model prefetches units in the order in which it will use them, forwards or backwards, one at a time; a block may
// be skipped.
void FsdpStore::prefetch(int unit) {
  const int step = unit > state_.prefetched ? 1 : -1;
  const bool goes_on = unit != state_.prefetched && std::abs(unit - state_.prefetched) <= 2;
  const int first = goes_on ? state_.prefetched + step : unit, end = unit + 2 * step;
  state_.prefetched = unit;
  for (int u = first; u != end; u += step)
    if (u >= 0 && u < held().units() && units_[static_cast<size_t>(u)].shard > 0) start_gather(u);
}

const UnitBuffers& FsdpStore::get(int u) {
  start_gather(u);
  const Unit& unit = units_[static_cast<size_t>(u)];
  const Span span(stream_.trace, "communication");
  wait_gather(unit.slot);
  return unit.buffers;
}

// A slot has a unit's gradients from the first time that it is opened until they are scattered: the head's of all
// micro-batches whose forward precedes the first backward, every other unit's of one micro-batch.
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

// NCCL would round 16-bit sums after every addition. On a device the ranks therefore exchange their 16-bit gradients,
// which is as many bytes, and each adds those of its shard in f32.
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
  const int64_t shard = units_[static_cast<size_t>(spec.unit)].shard;
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

}  // namespace ingot
