// The memory of FsdpStore: shards, and the slots in which units are gathered.
#include <algorithm>
#include <utility>

#include "ingot/parallel/fsdp.h"

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

constexpr int kWeightSlots = 3, kGradSlots = 2;  // the blocks share them

// Embedding and head have a slot each; the blocks take turns in `slots` of them.
size_t shared_slot(int unit, int units, int slots) {
  if (unit == 0) return 0;
  if (unit == units - 1) return 1;
  return 2 + static_cast<size_t>(unit % slots);
}

using UnitElements = int64_t (ParamList::*)(int unit) const;

// Returns the elements of each slot, enough for the largest unit that uses it. slots: as in shared_slot; 0 if
// every unit has its own. of: counts the elements of a unit that the slots hold.
std::vector<int64_t> slot_elements(const ParamList& list, int ranks, int slots,
                                   UnitElements of = &ParamList::unit_elements) {
  std::vector<int64_t> elements;
  for (int u = 0; u < list.units(); ++u) {
    const size_t slot = slots > 0 ? shared_slot(u, list.units(), slots) : static_cast<size_t>(u);
    elements.resize(std::max(elements.size(), slot + 1));
    elements[slot] = std::max(elements[slot], ranks * shard_of((list.*of)(u), ranks));
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

// Returns the bytes of what is sent in place of f32 gradients, for each slot and for the replicas, and of the
// residuals.
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
  if (!list.has_frozen()) return;
  Arena measure("frozen parameters plan", memory_of(stream.device));
  make_frozen(measure);
  frozen_.emplace("frozen parameters", measure.peak_bytes(), memory_of(stream.device), stream.backing);
  make_frozen(*frozen_);
  arenas_.push_back(&*frozen_);
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
    slots_.push_back({.full = copies_.alloc(dtype, {n}), .frozen = {}, .gather = {}, .frozen_gather = {}});
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

void FsdpStore::make_frozen(Arena& arena) {
  if (config_.keeps_units) {
    for (int u = 0; u < held().units(); ++u)
      allocate_frozen(units_[static_cast<size_t>(u)].buffers, held(), u, config_.compute, arena);
    return;
  }
  const std::vector<int64_t> elements =
      slot_elements(held(), shard_.size(), kWeightSlots, &ParamList::frozen_elements);
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].frozen = arena.alloc(config_.compute, {elements[i]});
  for (int u = 0; u < held().units(); ++u) {
    Unit& unit = units_[static_cast<size_t>(u)];
    unit.frozen_shard = shard_of(held().frozen_elements(u), shard_.size());
    unit.frozen = arena.alloc(config_.compute, {unit.frozen_shard});
    unit.buffers.frozen = slots_[unit.slot].frozen.rows(0, held().frozen_elements(u));
    unit.buffers.frozen_vectors = arena.alloc(DType::f32, {held().frozen_vectors(u)});
  }
}

}  // namespace ingot
