#include "ingot/checkpoint/rank_tensors.h"

#include <algorithm>
#include <cstring>

#include "ingot/checkpoint/hf_weights.h"
#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/core/staging.h"
#include "ingot/formats/safetensors_ranges.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> dims_of(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

void write_masters(SafetensorsRanges& file, SavedState& saved) {
  Trainer& trainer = saved.trainer();
  const ParamList& params = trainer.params().list();
  const std::vector<HfTensor> tensors = saved_tensors(*trainer.layout().model);
  for (size_t t = 0; t < tensors.size(); ++t) {
    const HfTensor& tensor = tensors[t];
    if (tensor.param < 0) {
      const bool writes = trainer.layout().mesh->world->rank() == 0;
      const std::vector<float> numbers(writes ? static_cast<size_t>(tensor.shape[0]) : 0, tensor.fill);
      file.write(t, 0, std::as_bytes(std::span(numbers)));
      continue;
    }
    const Range range = saved.value_range(tensor.param);
    if (range.begin == range.end) continue;
    const int64_t begin = saved.shard(tensor.param).begin;
    const Tensor w = saved.values(tensor.param);
    int64_t here = 0;
    for (const Rect& rect : rects_of(params[tensor.param], begin + range.begin, begin + range.end)) {
      write_hf_rect(file, t, tensor, rect, w.as<float>() + here);
      here += rect.elements();
    }
  }
}

// Calls f(number, first, count) for each contiguous range in `range` of this rank's shard of a state: the
// `count` elements from local index `number` on are the logical tensor's elements from index `first` on.
template <typename F>
void for_each_state_range(const Optimizer::State& state, const ParamSpec& spec, const ParamShard& shard,
                          Range range, F&& f) {
  if (range.begin == range.end) return;
  if (!state.is_per_element) return f(range.begin, state.begin + range.begin, range.end - range.begin);
  const int64_t C = spec.is_vector() ? 1 : spec.full_shape()[1];
  int64_t here = range.begin;
  for (const Rect& rect : rects_of(spec, shard.begin + range.begin, shard.begin + range.end)) {
    const int64_t step = rect.columns == C ? rect.rows : 1;  // number of contiguous rows
    for (int64_t r = 0; r < rect.rows; r += step) {
      f(here, (rect.row + r) * C + rect.column, step * rect.columns);
      here += step * rect.columns;
    }
  }
}

void write_states(SafetensorsRanges& file, SavedState& saved) {
  Trainer& trainer = saved.trainer();
  const ParamList& params = trainer.params().list();
  const std::vector<Optimizer::State>& states = trainer.state().optimizer.states();
  for (size_t k = 0; k < states.size(); ++k) {
    const Optimizer::State& state = states[k];
    const size_t size = size_bytes(state.tensor.dtype);
    const Range range = saved.state_range(k);
    if (range.begin == range.end) continue;
    const Tensor own = saved.state(k);
    const auto* numbers = static_cast<const std::byte*>(own.data);
    for_each_state_range(state, params[state.param], saved.shard(state.param), range,
                         [&](int64_t number, int64_t first, int64_t count) {
                           file.write(k, first,
                                      {numbers + static_cast<size_t>(number - range.begin) * size,
                                       static_cast<size_t>(count) * size});
                         });
  }
}

// Sums modulo 2^64 over the ranks.
std::vector<uint64_t> add_up(std::vector<uint64_t> sums, Communicator& all) {
  std::vector<uint64_t> gathered(sums.size() * static_cast<size_t>(all.size()));
  const auto bytes_of = [](std::vector<uint64_t>& numbers) {
    return Tensor(numbers.data(), DType::u8, {std::ssize(numbers) * static_cast<int64_t>(sizeof(uint64_t))});
  };
  all.all_gather_into("hashes", bytes_of(gathered), bytes_of(sums));
  std::vector<uint64_t> total(sums.size());
  for (size_t i = 0; i < gathered.size(); ++i) total[i % total.size()] += gathered[i];
  return total;
}

// Reads the elements [shard.begin, shard.end) of its parameter; those that no tensor has become zero.
void read_shard(const Tensor& values, const SafetensorsSet& files, const std::vector<HfTensor>& tensors,
                const ParamSpec& spec, const ParamShard& shard) {
  std::memset(values.data, 0, values.bytes());
  for (const HfTensor& tensor : tensors) {
    if (tensor.param != shard.id) continue;
    float* w = values.as<float>();
    for (const Rect& rect : rects_of(spec, shard.begin, shard.end)) {
      read_hf_rect(w, files, tensor, rect);
      w += rect.elements();
    }
  }
}

}  // namespace

std::vector<SafetensorsSource> optimizer_tensors(const Optimizer& optimizer) {
  std::vector<SafetensorsSource> tensors;
  for (const Optimizer::State& state : optimizer.states())
    tensors.push_back({.name = state.name,
                       .dtype = state.tensor.dtype,
                       .shape = dims_of(state.whole),
                       .bytes = {},
                       .stream = {}});
  return tensors;
}

RankTensorFiles::RankTensorFiles(const fs::path& folder, const Trainer& trainer)
    : all_(*trainer.layout().mesh->world),
      weights_{{folder / weights_name(*trainer.layout().model),
                hf_sources(saved_tensors(*trainer.layout().model), {})},
               {}},
      states_{{folder / "optimizer.safetensors", optimizer_tensors(trainer.state().optimizer)}, {}} {}

void RankTensorFiles::create() const {
  weights_.ranges.create();
  states_.ranges.create();
}

void RankTensorFiles::write(SavedState& saved) {
  weights_.ranges.open();
  write_masters(weights_.ranges, saved);
  weights_.sums = weights_.ranges.close();
  states_.ranges.open();
  write_states(states_.ranges, saved);
  states_.sums = states_.ranges.close();
}

void RankTensorFiles::add_up_sums() {
  weights_.sums = add_up(weights_.sums, all_);
  states_.sums = add_up(states_.sums, all_);
}

std::map<std::string, uint64_t> RankTensorFiles::verify() const {
  std::map<std::string, uint64_t> hashes;
  for (const File* file : {&weights_, &states_})
    hashes[file->ranges.path().filename()] = file->ranges.verify(file->sums);
  return hashes;
}

// Reads one parameter at a time, because the weights may be on a device.
void read_rank_weights(const SafetensorsSet& files, const std::vector<HfTensor>& tensors, Trainer& trainer) {
  TrainingStore& params = trainer.params();
  Stream& stream = *trainer.layout().stream;
  const auto is_wanted = [&](const ParamShard& shard) {
    return shard.elements() > 0 && std::ranges::find(tensors, shard.id, &HfTensor::param) != tensors.end();
  };
  Staging staging;
  for (const ParamShard& shard : params.shards()) {
    if (!is_wanted(shard)) continue;
    const Tensor values = shard.values();
    read_shard(staging.room(values), files, tensors, params.list()[shard.id], shard);
    staging.write(values, stream);
  }
  std::vector<float> frozen;
  for (const ParamShard& shard : params.frozen_shards()) {
    if (!is_wanted(shard)) continue;
    frozen.resize(static_cast<size_t>(shard.elements()));
    const Tensor values(frozen.data(), DType::f32, {shard.elements()});
    read_shard(values, files, tensors, params.list()[shard.id], shard);
    write_frozen(shard, values, staging, stream);
  }
}

void read_rank_states(const SafetensorsFile& file, Trainer& trainer) {
  TrainingStore& params = trainer.params();
  const std::vector<ParamShard> shards = params.shards();
  const std::vector<Optimizer::State>& states = trainer.state().optimizer.states();
  Staging staging;
  for (const Optimizer::State& state : states) {
    const SafetensorsEntry& entry = file.get(state.name);
    const Tensor& t = state.tensor;
    if (entry.dtype != t.dtype || entry.shape != dims_of(state.whole))
      fail(ErrorKind::kData, "{}: tensor {} is {} {}, the optimizer asks for {} {}", file.label(), state.name,
           entry.dtype_name, entry.shape_text(), name(t.dtype), state.whole.to_string());
    const size_t size = size_bytes(t.dtype);
    const Tensor room = staging.room(t);
    for_each_state_range(
        state, params.list()[state.param], *std::ranges::find(shards, state.param, &ParamShard::id),
        {0, t.elements()}, [&](int64_t number, int64_t first, int64_t count) {
          std::memcpy(static_cast<std::byte*>(room.data) + static_cast<size_t>(number) * size,
                      entry.bytes.data() + static_cast<size_t>(first) * size,
                      static_cast<size_t>(count) * size);
        });
    staging.write(t, *trainer.layout().stream);
  }
  if (file.tensors().size() != states.size())
    fail(ErrorKind::kData,
         "{}: holds {} tensors, the optimizer's state is {}; resume with the optimizer it was "
         "saved with",
         file.label(), file.tensors().size(), states.size());
}

}  // namespace ingot
