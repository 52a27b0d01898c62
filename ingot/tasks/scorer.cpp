#include "ingot/tasks/scorer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/core/error.h"
#include "ingot/core/parallel.h"

namespace ingot {
namespace {

constexpr int64_t kMostLogits = 128;  // rows of logits of a call

// Returns how many tokens the model reads at once. A device needs more of them to be busy. The number is a
// power of two, to which rows are rounded up there.
int64_t most_rows(int64_t slots, Device device) {
  const int64_t least = device == Device::kCuda ? 1024 : 128;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(slots, least))));
}

CacheShape cache_shape(const ScorerShape& shape) {
  return {.slots = shape.slots, .positions = shape.positions};
}

}  // namespace

// The arenas, without memory.
Scorer::Arenas Scorer::plan(const Transformer& model, const ScorerShape& shape, Device device) {
  const bool is_host = device == Device::kCpu;
  Arenas arenas{.caches = Arena("key-value cache", memory_of(device)),
                .scratch = Arena("inference", memory_of(device)),
                .host = Arena("logits", is_host ? Memory::kHost : Memory::kPinned),
                .there = Arena("logits of the device", memory_of(device))};
  model.make_caches(arenas.caches, shape.slots, shape.positions);
  lay_out(arenas.host, model, shape, device);
  if (!is_host) lay_out(arenas.there, model, shape, device);
  return arenas;
}

Scorer::Buffers Scorer::lay_out(Arena& arena, const Transformer& model, const ScorerShape& shape,
                                Device device) {
  return {.ids = arena.alloc(DType::i32, InferBatch::ids_shape(most_rows(shape.slots, device))),
          .logits = arena.alloc(DType::f32, {kMostLogits, model.config().vocab_padded()})};
}

size_t Scorer::scratch_bytes(const Transformer& model, const ScorerShape& shape, Device device) {
  return model.infer_scratch_bytes(most_rows(shape.slots, device), cache_shape(shape), device);
}

Scorer::Bytes Scorer::planned_bytes(const Transformer& model, const ScorerShape& shape, Device device) {
  const Arenas arenas = plan(model, shape, device);
  const size_t by_stream = arenas.caches.peak_bytes() + scratch_bytes(model, shape, device);
  if (device == Device::kCpu) return {.host = by_stream + arenas.host.peak_bytes(), .device = 0};
  return {.host = arenas.host.peak_bytes(), .device = by_stream + arenas.there.peak_bytes()};
}

Scorer::Scorer(const Transformer& model, ParamStore& params, Region& region, Stream& stream,
               const ScorerShape& shape)
    : model_(model),
      params_(params),
      region_(region),
      stream_(stream),
      shape_(shape),
      arenas_([&] {
        const Arenas planned = plan(model, shape, stream.device);
        const auto arena = [](const Arena& from, size_t size_bytes) {
          return Arena(from.name(), size_bytes, from.memory());
        };
        return Arenas{.caches = arena(planned.caches, planned.caches.peak_bytes()),
                      .scratch = arena(planned.scratch, scratch_bytes(model, shape, stream.device)),
                      .host = arena(planned.host, planned.host.peak_bytes()),
                      .there = arena(planned.there, planned.there.peak_bytes())};
      }()),
      caches_(model.make_caches(arenas_.caches, shape.slots, shape.positions)),
      host_(lay_out(arenas_.host, model, shape, stream.device)),
      slots_(static_cast<size_t>(shape.slots)) {
  if (stream.device == Device::kCuda) there_ = lay_out(arenas_.there, model, shape, stream.device);
}

// Computes the logits of a batch whose ids are the host's; on a device the logits are copied back.
void Scorer::infer(const InferBatch& batch) {
  LayerContext ctx{
      .params = params_, .region = region_, .scratch = arenas_.scratch, .stream = stream_, .dropout = {}};
  const int64_t outputs = batch.output_rows();
  if (stream_.device == Device::kCpu) return model_.infer(ctx, batch, caches_, host_.logits.rows(0, outputs));
  copy(there_.ids, host_.ids, stream_);
  model_.infer(ctx, batch.with_ids(there_.ids), caches_, there_.logits.rows(0, outputs));
  if (outputs > 0) copy(host_.logits.rows(0, outputs), there_.logits.rows(0, outputs), stream_);
  synchronize(stream_);
}

void Scorer::score(int64_t index, Row& row) const {
  const std::span<float> logits(host_.logits.rows(index, index + 1).as<float>(),
                                static_cast<size_t>(model_.config().vocab));
  model_.cap_logits(logits);
  const auto highest = std::ranges::max_element(logits);
  double sum = 0;
  for (const float z : logits) sum += std::exp(static_cast<double>(z - *highest));
  row.log_likelihood =
      static_cast<double>(logits[static_cast<size_t>(row.target)] - *highest) - std::log(sum);
  row.is_greedy = highest - logits.begin() == row.target;
}

void Scorer::prepare(Slot& slot, const ScoreRequest& request) {
  const size_t most = std::min(slot.held.size(), request.first - 1);
  const auto [held, wanted] = std::mismatch(
      slot.held.begin(), slot.held.begin() + static_cast<ptrdiff_t>(most), request.tokens.begin());
  slot.held.erase(held, slot.held.end());
}

void Scorer::advance(std::span<const ScoreRequest> requests, std::vector<Score>& scores) {
  struct Taken {
    int64_t slot = 0, count = 0;
  };
  int64_t left = most_rows(shape_.slots, stream_.device), left_logits = kMostLogits;
  std::vector<Taken> taken;
  const auto logits_of = [&](const Slot& slot, int64_t count) {
    const int64_t end = std::ssize(slot.held) + count,
                  first = static_cast<int64_t>(requests[slot.next].first);
    return std::clamp<int64_t>(end - (first - 1), 0, count);
  };
  for (int64_t i = 0; i < shape_.slots; ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot.next == slot.end) continue;
    int64_t count = std::min(std::ssize(requests[slot.next].tokens) - 1 - std::ssize(slot.held), left);
    count -= std::max<int64_t>(0, logits_of(slot, count) - left_logits);
    if (count == 0) continue;
    taken.push_back({i, count});
    left -= count;
    left_logits -= logits_of(slot, count);
  }
  std::stable_partition(taken.begin(), taken.end(), [](const Taken& t) { return t.count == 1; });
  std::vector<InferSegment> segments;
  std::vector<int32_t> tokens;
  std::vector<Row> rows;
  for (const auto& [index, count] : taken) {
    Slot& slot = slots_[static_cast<size_t>(index)];
    const ScoreRequest& request = requests[slot.next];
    const int64_t first = std::ssize(slot.held), logits = logits_of(slot, count);
    segments.push_back({.slot = index, .first = first, .count = count, .logits = logits});
    const auto begin = request.tokens.begin() + first;
    tokens.insert(tokens.end(), begin, begin + count);
    for (auto target = begin + count - logits; target != begin + count; ++target)
      rows.push_back({.request = slot.next, .target = *(target + 1)});
    slot.held.insert(slot.held.end(), begin, begin + count);
  }
  infer(
      InferBatch(host_.ids, std::move(segments), tokens, shape_.positions, stream_.device == Device::kCuda));
  parallel_for(std::ssize(rows), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) score(i, rows[static_cast<size_t>(i)]);
  });
  for (const Row& row : rows) {
    scores[row.request].log_likelihood += row.log_likelihood;
    scores[row.request].is_greedy &= row.is_greedy;
  }
}

std::vector<Score> Scorer::run(std::span<const ScoreRequest> requests, const Progress& progress) {
  std::vector<Score> scores(requests.size());
  int64_t all = 0, done = 0;
  for (const ScoreRequest& request : requests) all += std::ssize(request.tokens) - 1;
  slots_.assign(slots_.size(), {});
  for (size_t next = 0, busy = 0; next < requests.size() || busy > 0;) {
    for (Slot& slot : slots_) {
      if (slot.next < slot.end || next == requests.size()) continue;
      slot.next = next;
      while (next < requests.size() && requests[next].record == requests[slot.next].record) ++next;
      slot.end = next;
      prepare(slot, requests[slot.next]);
      ++busy;
    }
    advance(requests, scores);
    for (Slot& slot : slots_) {
      if (slot.next == slot.end || slot.held.size() + 1 < requests[slot.next].tokens.size()) continue;
      if (!std::isfinite(scores[slot.next].log_likelihood))
        fail(ErrorKind::kNumerics,
             "the likelihood of an answer is {}; try --compute f32, or an earlier checkpoint",
             scores[slot.next].log_likelihood);
      done += std::ssize(slot.held);
      if (++slot.next == slot.end)
        --busy;
      else
        prepare(slot, requests[slot.next]);
    }
    if (progress) progress(done, all);
  }
  return scores;
}

}  // namespace ingot
