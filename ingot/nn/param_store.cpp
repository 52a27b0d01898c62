#include "ingot/nn/param_store.h"

#include <algorithm>
#include <utility>

#include "ingot/core/philox.h"
#include "ingot/core/staging.h"
#include "ingot/core/stream.h"
#include "ingot/ops/bf16_masters.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/random_normal.h"

namespace ingot {

int ParamList::add(ParamSpec spec) {
  INGOT_CHECK(spec.unit == units() || spec.unit == units() - 1,
              "ParamList::add: {} belongs to unit {}, but {} units are declared", spec.name, spec.unit,
              units());
  if (spec.unit == units()) sizes_.emplace_back();
  place(spec, sizes_[static_cast<size_t>(spec.unit)]);
  specs_.push_back(std::move(spec));
  return static_cast<int>(specs_.size()) - 1;
}

void ParamList::place(ParamSpec& spec, Sizes& unit) {
  const int64_t padded = (spec.elements() + kAlign - 1) / kAlign * kAlign;
  int64_t& elements = spec.is_trained ? unit.trained : unit.frozen;
  if (spec.is_trained || !spec.is_vector()) spec.offset = std::exchange(elements, elements + padded);
  if (!spec.is_vector()) return;
  int64_t& vectors = spec.is_trained ? unit.vectors : unit.frozen_vectors;
  spec.vector_offset = std::exchange(vectors, vectors + padded);
}

int64_t ParamList::elements() const {
  int64_t total = 0;
  for (const Sizes& unit : sizes_) total += unit.trained;
  return total;
}

bool ParamList::has_frozen() const {
  return std::ranges::any_of(sizes_, [](const Sizes& unit) { return unit.frozen + unit.frozen_vectors > 0; });
}

ParamList ParamList::training(const std::vector<int>& trained) const {
  ParamList list = *this;
  list.sizes_.assign(sizes_.size(), {});
  for (ParamSpec& spec : list.specs_) spec.is_trained = false;
  for (const int id : trained) list.specs_[static_cast<size_t>(id)].is_trained = true;
  for (ParamSpec& spec : list.specs_) place(spec, list.sizes_[static_cast<size_t>(spec.unit)]);
  return list;
}

ParamList ParamList::keeping(const std::function<bool(int unit)>& keeps) const {
  ParamList kept = *this;
  for (ParamSpec& spec : kept.specs_) {
    if (keeps(spec.unit)) continue;
    spec.shape[0] = 0;
    spec.slice = {};
    spec.fused_rows = {};
    spec.padding_rows = spec.offset = spec.vector_offset = 0;
    kept.sizes_[static_cast<size_t>(spec.unit)] = {};
  }
  return kept;
}

namespace {

// The parameter's range of its unit's flat buffer.
Tensor view(const Tensor& flat, const ParamSpec& spec) {
  return flat.rows(spec.offset, spec.offset + spec.elements()).reshape(spec.shape);
}

// The same in a flat buffer of vectors.
Tensor vector_view(const Tensor& vectors, const ParamSpec& spec) {
  return vectors.rows(spec.vector_offset, spec.vector_offset + spec.elements());
}

Tensor frozen_view(const UnitBuffers& unit, const ParamSpec& spec) {
  return spec.is_vector() ? vector_view(unit.frozen_vectors, spec) : view(unit.frozen, spec);
}

}  // namespace

const UnitBuffers& ParamStore::awaited(int unit) {
  INGOT_CHECK(has_weights(unit), "ParamStore: the weights of unit {} are read before wait_weights", unit);
  return buffers(unit);
}

Tensor ParamStore::weight(int id) {
  if (id < 0) return {};
  const ParamSpec& spec = held_[id];
  if (!spec.is_trained) return frozen_view(awaited(spec.unit), spec);
  return spec.is_vector() ? master(id) : view(awaited(spec.unit).compute, spec);
}

Tensor ParamStore::master(int id) {
  const ParamSpec& spec = held_[id];
  const UnitBuffers& unit = awaited(spec.unit);
  INGOT_CHECK(spec.is_trained, "ParamStore::master: {} is frozen", spec.name);
  if (unit.master.elements() == held_.unit_elements(spec.unit)) return view(unit.master, spec);
  return spec.is_vector() ? vector_view(unit.master, spec) : view(unit.grad, spec);
}

Tensor ParamStore::best_weight(int id) {
  const ParamSpec& spec = held_[id];
  const bool has_master =
      spec.is_trained && awaited(spec.unit).master.elements() == held_.unit_elements(spec.unit);
  return has_master ? master(id) : weight(id);
}

Tensor ParamStore::grad(int id) {
  if (id < 0 || !held_[id].is_trained) return {};
  return view(buffers(held_[id].unit).grad, held_[id]);
}

TrainingStore::TrainingStore(const ParamList& held, Masters masters) : ParamStore(held), masters_(masters) {
  state_.has_gradients.assign(static_cast<size_t>(held.units()), true);  // zeros
  begin_completing();
}

void TrainingStore::place(const ParamList& model, StoreRanks ranks) {
  list_ = &model;
  ranks_ = std::move(ranks);
  is_sharded_ = ranks_.shards.count > 1 || ranks_.tensor.count > 1 || ranks_.is_owner;
}

void TrainingStore::add(std::unique_ptr<GradientReduction> reduction) {
  if (reduction->arena()) arenas_.push_back(reduction->arena());
  if (reduction->when == GradientReduction::When::kUnit) sums_units_ = true;
  reductions_.push_back(std::move(reduction));
}

void TrainingStore::begin_step() { state_.has_gradients.assign(state_.has_gradients.size(), false); }

// The units of other stages need no gradients.
void TrainingStore::begin_completing() {
  state_.is_complete.clear();
  for (int unit = 0; unit < held_.units(); ++unit)
    state_.is_complete.push_back(held_.unit_elements(unit) == 0);
}

void TrainingStore::complete(int unit) {
  if (!sums_units_) return;
  std::vector<bool>::reference is_complete = state_.is_complete[static_cast<size_t>(unit)];
  INGOT_CHECK(!is_complete, "TrainingStore: unit {} is complete twice in one step", unit);
  is_complete = true;
  for (const auto& reduction : reductions_) reduction->start_unit(unit, state_.is_complete);
}

void TrainingStore::wait_messages() {
  wait_memory();
  for (const auto& reduction : reductions_) reduction->wait();
}

void TrainingStore::wait_gradients() {
  end_memory_step();
  if (!is_last_micro_) return;
  for (size_t unit = 0; sums_units_ && unit < state_.is_complete.size(); ++unit)
    INGOT_CHECK(state_.is_complete[unit], "TrainingStore: unit {} had no gradients in this step", unit);
  for (const auto& reduction : reductions_) {
    reduction->start_step();
    reduction->wait();
  }
  begin_completing();
}

std::vector<GradientSum> TrainingStore::sums() const {
  std::vector<GradientSum> sums = memory_sums();
  for (const auto& reduction : reductions_)
    for (GradientSum& sum : reduction->sums()) sums.push_back(std::move(sum));
  return sums;
}

std::vector<ParamShard> TrainingStore::shards() {
  std::vector<ParamShard> shards = held_shards();
  for (ParamShard& shard : shards)
    shard.contributes_to_norm =
        is_owner(shard.id) && (list()[shard.id].is_sharded() || ranks_.tensor.index == 0);
  return shards;
}

Range TrainingStore::written(const ParamShard& shard) const {
  const Replicas holders = replicas(shard.id);
  if (holders.count == 0) return {0, 0};
  const int64_t copies = list()[shard.id].copies(shard.begin, shard.end);
  return split_range(shard.elements() - copies, holders.count, holders.index);
}

Replicas TrainingStore::replicas(int id) const {
  if (!is_owner(id)) return {0, 0};
  const Replicas &data = ranks_.data, copies = list()[id].is_sharded() ? Replicas{} : ranks_.tensor;
  return {copies.count * data.count, copies.index * data.count + data.index};
}

Replicas TrainingStore::shard_group(int id) const {
  if (!is_owner(id)) return {0, 0};
  const Replicas &data = ranks_.data, &shards = ranks_.shards, &tensor = ranks_.tensor;
  return {tensor.count * shards.count * data.count,
          (tensor.index * shards.count + shards.index) * data.count + data.index};
}

size_t frozen_bytes(const ParamList& list, DType compute) {
  if (!list.has_frozen()) return 0;
  size_t bytes = 0;
  for (int u = 0; u < list.units(); ++u)
    bytes += static_cast<size_t>(list.frozen_elements(u)) * size_bytes(compute) +
             static_cast<size_t>(list.frozen_vectors(u)) * sizeof(float) + 2 * Arena::kDeviceAlign;
  return bytes;
}

void allocate_frozen(UnitBuffers& unit, const ParamList& list, int u, DType compute, Arena& arena) {
  if (!list.has_frozen()) return;
  unit.frozen = arena.alloc(compute, {list.frozen_elements(u)});
  unit.frozen_vectors = arena.alloc(DType::f32, {list.frozen_vectors(u)});
}

namespace {

size_t flat_bytes(const ParamList& list, DType dtype) {
  return static_cast<size_t>(list.elements()) * size_bytes(dtype) +
         static_cast<size_t>(list.units()) * Arena::kDeviceAlign;
}

size_t params_bytes(const ParamList& list, DType compute, Masters masters) {
  const size_t copies = (compute == DType::f32 ? 0 : flat_bytes(list, compute)) + frozen_bytes(list, compute);
  if (masters == Masters::kF32) return flat_bytes(list, DType::f32) + copies;
  size_t vectors = 0;
  for (int u = 0; u < list.units(); ++u)
    vectors += static_cast<size_t>(list.vector_elements(u)) * sizeof(float) + Arena::kDeviceAlign;
  return vectors + copies + (masters == Masters::kTail ? flat_bytes(list, DType::u16) : 0);
}

}  // namespace

ResidentStore::ResidentStore(const ParamList& list, DType compute, bool has_grads, Masters masters,
                             Device device, Backing backing)
    : TrainingStore(list, masters),
      params_("parameters", params_bytes(list, compute, masters), memory_of(device), backing),
      grads_("gradients", has_grads ? flat_bytes(list, DType::f32) : 0, memory_of(device), backing) {
  const bool is_for_inference = masters == Masters::kNone && !has_grads;
  INGOT_CHECK(
      masters == Masters::kF32 || (compute == DType::bf16 && has_grads) ||
          (compute != DType::f32 && is_for_inference),
      "ResidentStore: weights without f32 masters need bf16 and gradients, or 16 bits and no gradients");
  for (int u = 0; u < list.units(); ++u) {
    const Shape flat{list.unit_elements(u)};
    UnitBuffers unit;
    unit.master = params_.alloc(DType::f32, masters == Masters::kF32 ? flat : Shape{list.vector_elements(u)});
    unit.compute = compute == DType::f32 ? unit.master : params_.alloc(compute, flat);
    if (masters == Masters::kTail) unit.tail = params_.alloc(DType::u16, flat);
    if (has_grads) unit.grad = grads_.alloc(DType::f32, flat);
    allocate_frozen(unit, list, u, compute, params_);
    units_.push_back(unit);
  }
  arenas_ = {&params_, &grads_};
}

// The update has zeroed the gradients that are not overwritten.
OldGradients ResidentStore::open_gradients(int unit) {
  std::vector<bool>::reference has_gradients = state_.has_gradients[static_cast<size_t>(unit)];
  const OldGradients old = has_gradients ? OldGradients::kNone : OldGradients::kOverwritten;
  has_gradients = true;
  return old;
}

void ResidentStore::start_reduction(int unit) {
  if (is_last_micro()) complete(unit);
}

std::vector<ParamShard> ResidentStore::held_shards() {
  std::vector<ParamShard> shards;
  for (size_t p = 0; p < held().specs().size(); ++p) {
    const int id = static_cast<int>(p);
    const ParamSpec& spec = held()[id];
    if (!spec.is_trained) continue;
    const UnitBuffers& unit = buffers(spec.unit);
    const int64_t n = spec.elements(), begin = spec.offset, end = begin + n;
    const bool is_bf16_alone = masters() != Masters::kF32 && !spec.is_vector();
    const bool has_copy = masters() == Masters::kF32 && unit.compute.data != unit.master.data;
    shards.push_back({.id = id,
                      .begin = 0,
                      .end = n,
                      .w = (is_bf16_alone ? weight(id) : master(id)).reshape({n}),
                      .tail = is_bf16_alone && unit.tail ? unit.tail.rows(begin, end) : Tensor{},
                      .compute = has_copy ? unit.compute.rows(begin, end) : Tensor{},
                      .grad = unit.grad ? unit.grad.rows(begin, end) : Tensor{},
                      .is_overwritten = spec.is_overwritten});
  }
  return shards;
}

std::vector<ParamShard> ResidentStore::frozen_shards() {
  std::vector<ParamShard> shards;
  for (size_t p = 0; p < held().specs().size(); ++p)
    if (const ParamSpec& spec = held().specs()[p]; !spec.is_trained) {
      const int id = static_cast<int>(p);
      shards.push_back({.id = id,
                        .begin = 0,
                        .end = spec.elements(),
                        .w = weight(id).reshape({spec.elements()}),
                        .tail = {},
                        .compute = {},
                        .grad = {}});
    }
  return shards;
}

void ResidentStore::refresh_compute(Stream& stream) {
  for (const UnitBuffers& unit : units_) {
    if (masters() == Masters::kF32) {
      if (unit.compute.data != unit.master.data) cast(unit.compute, unit.master, stream);
      continue;
    }
    collapse_masters(unit.compute, unit.tail, unit.grad, stream);
  }
}

void ResidentStore::expand_masters(Stream& stream) {
  if (masters() == Masters::kF32) return;
  for (const UnitBuffers& unit : units_) ingot::expand_masters(unit.grad, unit.compute, unit.tail, stream);
}

void for_each_range(const ParamSpec& spec, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  if (!spec.is_sharded()) return f(0, 0, spec.elements());
  const int64_t width = spec.is_vector() ? 1 : spec.shape[1];
  const int64_t full_width = spec.is_vector() ? 1 : spec.slice.full[1];
  int64_t here = 0;
  for (const TensorSlice::Rows& rows : spec.slice.rows) {
    const bool is_whole = width == full_width;  // neighbouring rows then form one range
    const int64_t step = is_whole ? rows.count : 1;
    for (int64_t r = 0; r < rows.count; r += step) {
      f(here, (rows.first + r) * full_width + spec.slice.first_column, step * width);
      here += step * width;
    }
  }
}

namespace {

// Appends the rectangles of elements [begin, end) of rows that start at `row` and span `columns` columns
// from `column` on.
void add_rects(std::vector<Rect>& rects, int64_t row, int64_t column, int64_t columns, int64_t begin,
               int64_t end) {
  while (begin < end) {
    const int64_t first = begin % columns, rest = end - begin;
    const bool is_full = first == 0 && rest >= columns;
    const Rect rect = is_full
                          ? Rect{row + begin / columns, rest / columns, column, columns}
                          : Rect{row + begin / columns, 1, column + first, std::min(columns - first, rest)};
    rects.push_back(rect);
    begin += rect.elements();
  }
}

}  // namespace

std::vector<Rect> rects_of(const ParamSpec& spec, int64_t begin, int64_t end) {
  const int64_t columns = spec.is_vector() ? 1 : spec.shape[1];
  std::vector<Rect> rects;
  if (!spec.is_sharded()) {
    add_rects(rects, 0, 0, columns, begin, end);
    return rects;
  }
  int64_t here = 0;
  for (const TensorSlice::Rows& rows : spec.slice.rows) {
    const int64_t size = rows.count * columns;
    add_rects(rects, rows.first, spec.slice.first_column, columns, std::max<int64_t>(begin - here, 0),
              std::min(end - here, size));
    here += size;
  }
  return rects;
}

namespace {

// Writes the initial values of parameter `id` to w (n) f32.
void init_param(const Tensor& w, const ParamSpec& spec, int id, uint64_t seed) {
  const Shape& full_shape = spec.full_shape();
  const int64_t row = full_shape.elements() / std::max<int64_t>(1, full_shape[0]);
  const bool is_normal = spec.init == Init::kNormal && spec.init_std > 0;
  const int64_t normals_end = is_normal ? full_shape.elements() - spec.padding_rows * row : 0;
  const RandomKey key{
      .seed = seed, .purpose = Purpose::kInit, .stream = static_cast<uint32_t>(id), .step = 0};
  for_each_range(spec, [&](int64_t here, int64_t full, int64_t count) {
    const int64_t normals = std::clamp<int64_t>(normals_end - full, 0, count);
    if (normals > 0)
      fill_normal(w.rows(here, here + normals), static_cast<float>(spec.init_std), key,
                  static_cast<uint64_t>(full));
    std::fill(w.as<float>() + here + normals, w.as<float>() + here + count,
              spec.init == Init::kOne    ? 1.0f
              : spec.init == Init::kHalf ? 0.5f
                                         : 0.0f);
  });
}

}  // namespace

void init_params(TrainingStore& store, uint64_t seed) {
  Stream cpu;
  init_params(store, seed, cpu);
}

void write_frozen(const ParamShard& shard, const Tensor& values, Staging& staging, Stream& stream) {
  Stream cpu;
  const Tensor room = staging.room(shard.w);
  if (room.dtype == DType::f32)
    std::copy_n(values.as<float>(), values.elements(), room.as<float>());
  else
    cast(room, values, cpu);
  staging.write(shard.w, stream);
}

void init_params(TrainingStore& store, uint64_t seed, Stream& stream) {
  std::vector<float> whole;  // one parameter at a time
  Staging staging;
  for (const ParamShard& shard : store.frozen_shards()) {
    const ParamSpec& spec = store.list()[shard.id];
    whole.resize(static_cast<size_t>(spec.elements()));
    const Tensor values(whole.data(), DType::f32, {spec.elements()});
    if (shard.elements() == 0) continue;
    init_param(values, spec, shard.id, seed);
    write_frozen(shard, values.rows(shard.begin, shard.end), staging, stream);
  }
  for (const ParamShard& shard : store.shards()) {
    const ParamSpec& spec = store.list()[shard.id];
    const int64_t n = spec.elements();
    if (!store.is_sharded()) {
      const Tensor master = store.master(shard.id).reshape({n});
      init_param(staging.room(master), spec, shard.id, seed);
      staging.write(master, stream);
    } else if (shard.elements() > 0) {
      whole.resize(static_cast<size_t>(n));
      init_param(Tensor(whole.data(), DType::f32, {n}), spec, shard.id, seed);
      const Tensor values = shard.values();
      std::copy_n(whole.data() + shard.begin, shard.elements(), staging.room(values).as<float>());
      staging.write(values, stream);
    }
  }
}

}  // namespace ingot
