// Transformer::time_block measures the ops of a block on this machine.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "ingot/core/copy.h"
#include "ingot/core/timeline.h"
#include "ingot/nn/transformer.h"
#include "ingot/ops/fill_normal.h"

namespace ingot {
namespace {

constexpr int kCalls = 4;  // runs of each op; the first is a warm-up

void call_part(Trace& trace, const char* part, const std::function<void()>& work) {
  for (int i = 0; i < kCalls; ++i) {
    const Span span(&trace, part);
    work();
  }
}

// Median over all calls of a part but the first: of their times, or of the total time of the spans `inner`
// in each of them.
double median_s(const std::vector<Timeline::Row>& rows, std::string_view part, std::string_view inner = {}) {
  std::vector<double> times_s;
  bool is_inside = false;
  for (const Timeline::Row& row : rows) {
    const double time_s = row.end_s - row.begin_s;
    if (row.depth == 0) {
      is_inside = row.name == part;
      if (is_inside) times_s.push_back(inner.empty() ? time_s : 0);
    } else if (is_inside && row.name == inner) {
      times_s.back() += time_s;
    }
  }
  const auto first = times_s.begin() + 1, middle = first + (kCalls - 1) / 2;
  std::nth_element(first, middle, times_s.end());
  return *middle;
}

// Memory of one block's forward pass. The activation's output is not among the saved tensors
// (Place::kNone), so that the MLP can stop before the activation.
struct BlockMemory {
  AttentionLayer::Saved attention;
  MlpLayer::Saved mlp;
  Tensor out;     // (N, C)
  Tensor act;     // (N, hidden)
  Tensor tokens;  // (B, T) i32, all 0

  BlockMemory(Arena& arena, const AttentionLayer& attention_layer, const MlpLayer& mlp_layer, int64_t B,
              int64_t T, DType compute) {
    attention = attention_layer.make_saved(arena, B, T, compute, {}, {});
    attention.norm = attention_layer.make_stats(arena, B * T);
    MlpPlaces places;
    places.act = Place::kNone;
    mlp = mlp_layer.make_saved(arena, B * T, compute, places, {});
    mlp.norm = mlp_layer.make_stats(arena, B * T);
    out = arena.alloc(compute, attention.x.shape);
    act = arena.alloc(compute, {B * T, mlp_layer.hidden()});
    tokens = arena.alloc(DType::i32, {B, T});
  }
};

}  // namespace

BlockTimes Transformer::time_block(ParamStore& params, int64_t B, int64_t T, Stream& stream) const {
  const Block& block = blocks_.front();
  const Memory place = memory_of(stream.device);
  Arena measure("block times plan", place);
  BlockMemory(measure, block.attention, block.mlp, B, T, compute_);
  Arena arena("block times", measure.peak_bytes(), place),
      scratch("scratch", scratch_bytes(B, T, false, stream.device), place);
  const BlockMemory memory(arena, block.attention, block.mlp, B, T, compute_);
  fill_zero(memory.tokens, stream);
  for (const Tensor& x : {memory.attention.x, memory.mlp.x}) fill_normal(x, 1, stream);
  Region region;
  LayerContext ctx{.params = params, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  const auto attend = [&](const Tensor& out) {
    block.attention.forward(ctx, memory.attention, {memory.attention.x, {}}, {.delta = out}, {},
                            rope_table_on(stream), nullptr);
  };
  const auto feed = [&](const Tensor& out) {
    block.mlp.forward(ctx, memory.mlp, {memory.mlp.x, {}}, {.delta = out});
  };
  Trace trace;
  Timeline timeline(stream);
  trace.set_listener(&timeline);
  Trace* const before = std::exchange(stream.trace, &trace);
  call_part(trace, "time embedding", [&] { embed(ctx, memory.tokens, memory.out); });
  call_part(trace, "time heads", [&] { attend({}); });
  call_part(trace, "time attention", [&] { attend(memory.out); });
  call_part(trace, "time pre", [&] { feed({}); });
  call_part(trace, "time mlp", [&] { feed(memory.out); });
  call_part(trace, "time activation", [&] { block.mlp.activate(ctx, memory.act, memory.mlp.pre); });
  stream.trace = before;
  const std::vector<Timeline::Row> rows = timeline.rows();
  BlockTimes times;
  times.embedding_s = median_s(rows, "time embedding");
  times.heads_s = median_s(rows, "time heads");
  times.proj_s = std::max(0.0, median_s(rows, "time attention") - times.heads_s);
  times.pre_s = median_s(rows, "time pre");
  times.norm_s = median_s(rows, "time mlp", "norm");
  times.activation_s = median_s(rows, "time activation");
  // If the activation is fused into the first product, its time is already in pre_s and there
  // is no such span.
  const double within_s = median_s(rows, "time mlp", "activation");
  times.down_s = std::max(0.0, median_s(rows, "time mlp") - times.pre_s - within_s);
  return times;
}

}  // namespace ingot
