#include "ingot/infer/infer_engine.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_graph.h"

namespace ingot {
namespace {

// Returns the number to which a pass may round up n rows (InferBatch).
int64_t padded_on(Device device, int64_t n) {
  return device == Device::kCuda ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))) : n;
}

}  // namespace

InferShape scoring_shape(int64_t slots, int64_t positions, Device device) {
  constexpr int64_t kMaxLogits = 128;
  return {.slots = slots,
          .positions = positions,
          .tokens = std::max(slots, usual_tokens(device)),
          .logits = kMaxLogits};
}

// The arenas, without memory.
InferEngine::Arenas InferEngine::plan(const Transformer& model, const InferShape& shape, Device device) {
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

InferEngine::Arenas InferEngine::allocate(const Transformer& model, const InferShape& shape, Device device) {
  const Arenas planned = plan(model, shape, device);
  const auto arena = [](const Arena& from, size_t size_bytes) {
    return Arena(from.name(), size_bytes, from.memory());
  };
  return {.caches = arena(planned.caches, planned.caches.peak_bytes()),
          .scratch = arena(planned.scratch, scratch_bytes(model, shape, device)),
          .host = arena(planned.host, planned.host.peak_bytes()),
          .there = arena(planned.there, planned.there.peak_bytes())};
}

InferEngine::Buffers InferEngine::lay_out(Arena& arena, const Transformer& model, const InferShape& shape,
                                          Device device) {
  return {
      .ids = arena.alloc(DType::i32, InferBatch::ids_shape(padded_on(device, shape.tokens))),
      .logits = arena.alloc(DType::f32, {padded_on(device, shape.logits), model.config().vocab_padded()})};
}

size_t InferEngine::scratch_bytes(const Transformer& model, const InferShape& shape, Device device) {
  return model.infer_scratch_bytes(padded_on(device, shape.tokens), {shape.slots, shape.positions}, device);
}

InferBytes InferEngine::planned_bytes(const Transformer& model, const InferShape& shape, Device device) {
  const Arenas arenas = plan(model, shape, device);
  const size_t by_stream = arenas.caches.peak_bytes() + scratch_bytes(model, shape, device);
  if (device == Device::kCpu) return {.host = by_stream + arenas.host.peak_bytes(), .device = 0};
  return {.host = arenas.host.peak_bytes(), .device = by_stream + arenas.there.peak_bytes()};
}

InferEngine::InferEngine(const Transformer& model, ParamStore& params, Region& region, Stream& stream,
                         const InferShape& shape, Transformer::Infer infer)
    : model_(model),
      params_(params),
      region_(region),
      stream_(stream),
      shape_(shape),
      has_graphs_(shape.has_graphs && !infer),
      infer_(infer ? std::move(infer) : model.bound_infer()),
      arenas_(allocate(model, shape, stream.device)),
      caches_(model.make_caches(arenas_.caches, shape.slots, shape.positions)),
      host_(lay_out(arenas_.host, model, shape, stream.device)) {
  if (stream.device == Device::kCuda) there_ = lay_out(arenas_.there, model, shape, stream.device);
}

void InferEngine::run(std::vector<InferSegment> segments, std::span<const int32_t> tokens) {
  const bool is_host = stream_.device == Device::kCpu;
  const InferBatch batch(host_.ids, std::move(segments), tokens, shape_.positions, !is_host);
  LayerContext ctx{
      .params = params_, .region = region_, .scratch = arenas_.scratch, .stream = stream_, .dropout = {}};
  const int64_t outputs = batch.output_rows(), wanted = batch.outputs_count();
  if (is_host) return infer_(ctx, batch, caches_, host_.logits.rows(0, outputs));
  copy(there_.ids, host_.ids, stream_);
  run_on_device(ctx, batch.with_ids(there_.ids), there_.logits.rows(0, outputs));
  if (wanted > 0) copy(host_.logits.rows(0, wanted), there_.logits.rows(0, wanted), stream_);
  synchronize(stream_);
}

// A pass of single tokens that all want logits repeats that of the last ones with other contents of the same
// memory, until longest_decode() changes.
void InferEngine::run_on_device(LayerContext& ctx, const InferBatch& batch, const Tensor& logits) {
  if constexpr (kHasCuda) {
    const bool has_graph =
        has_graphs_ && batch.is_decode_only() && batch.outputs_count() == batch.tokens_count();
    if (has_graph && !graphs_.try_emplace(batch.rows()).second) {
      Captured& captured = graphs_[batch.rows()];
      const auto pass = [&] { infer_(ctx, batch, caches_, logits); };
      if (!captured.graph)
        captured.graph = std::make_shared<cuda::Graph>(stream_, pass);
      else if (captured.longest != batch.longest_decode())
        captured.graph->replace(stream_, pass);
      captured.longest = batch.longest_decode();
      return captured.graph->launch(stream_);
    }
  }
  infer_(ctx, batch, caches_, logits);
}

std::span<float> InferEngine::logits(int64_t row) const {
  return {host_.logits.rows(row, row + 1).as<float>(), static_cast<size_t>(model_.config().vocab)};
}

}  // namespace ingot
