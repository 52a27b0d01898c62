// Transformer::time_block: what the parts of a block cost on this machine.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "ingot/nn/transformer.h"

namespace ingot {
namespace {

// Median of three calls, after one that pays for first use.
double median_s(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  call();
  std::array<double, 3> times_s;
  for (double& time_s : times_s) {
    const auto start = Clock::now();
    call();
    time_s = std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::sort(times_s.begin(), times_s.end());
  return times_s[1];
}

// What one block's forward works on. The activation's result is left to scratch, so that the MLP can stop
// before it.
struct BlockMemory {
  AttentionLayer::Saved attention;
  MlpLayer::Saved mlp;
  Tensor out;     // (N, C)
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
    tokens = arena.alloc(DType::i32, {B, T});
  }
};

}  // namespace

BlockTimes Transformer::time_block(ParamStore& params, int64_t B, int64_t T) const {
  const Block& block = blocks_.front();
  Arena measure("block times plan");
  BlockMemory(measure, block.attention, block.mlp, B, T, compute_);
  Arena arena("block times", measure.peak_bytes()), scratch("scratch", scratch_bytes(B, T, false));
  const BlockMemory memory(arena, block.attention, block.mlp, B, T, compute_);
  Region region;
  Trace trace;
  Stream stream;
  LayerContext ctx{.params = params, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  const auto attend = [&](const Tensor& out) {
    block.attention.forward(ctx, memory.attention, out, memory.attention.x, {}, {}, rope_table_, nullptr);
  };
  const auto feed = [&](const Tensor& out) { block.mlp.forward(ctx, memory.mlp, out, memory.mlp.x, {}); };
  BlockTimes times;
  times.embedding_s = median_s([&] { embed(ctx, memory.tokens, memory.out, 0); });
  times.heads_s = median_s([&] { attend({}); });
  times.proj_s = std::max(0.0, median_s([&] { attend(memory.out); }) - times.heads_s);
  times.pre_s = median_s([&] { feed({}); });
  stream.trace = &trace;
  const double mlp_s = median_s([&] { feed(memory.out); });
  constexpr double kCalls = 4;  // of median_s
  times.norm_s = trace.time_s("norm") / kCalls;
  times.activation_s = trace.time_s("activation") / kCalls;
  times.down_s = std::max(0.0, mlp_s - times.pre_s - times.activation_s);
  return times;
}

}  // namespace ingot
