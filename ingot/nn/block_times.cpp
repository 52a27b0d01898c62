// Transformer::time_block measures the ops of a block on this machine.
#include <algorithm>
#include <vector>

#include "ingot/core/copy.h"
#include "ingot/core/median.h"
#include "ingot/core/timeline.h"
#include "ingot/nn/transformer.h"

namespace ingot {
namespace {

constexpr int kCalls = 4;  // the first is a warm-up

// Adds the time of an operation to the parts of the block to which it belongs.
class PartTimes {
 public:
  void add(const Op& op, double time_s) {
    const std::string name = op.primitive->name();
    const bool is_activation = name == "activation" || name == "swiglu";
    if (op.scope.half == Half::kNone) {
      times.embedding_s += time_s;
    } else if (op.scope.half == Half::kAttention) {
      (is_past_attention_ ? times.proj_s : times.heads_s) += time_s;
      is_past_attention_ |= name == "attention";
    } else {
      if (name == "norm") times.norm_s += time_s;
      if (is_activation)
        times.activation_s += time_s;
      else
        (is_past_activation_ ? times.down_s : times.pre_s) += time_s;
      is_past_activation_ |= is_activation;
    }
  }
  BlockTimes times;

 private:
  bool is_past_attention_ = false, is_past_activation_ = false;
};

}  // namespace

BlockTimes Transformer::time_block(ParamStore& params, int64_t B, int64_t T, Stream& stream) const {
  const Built built =
      build(Use::kEvaluation, B, T, forward_only_plan(1), {0, 2}, stream.device, {.joins_products = false});
  const Program& program = *built.program;
  const Memory place = memory_of(stream.device);
  Arena measure("block times plan", place);
  const auto allocate = [&](Arena& arena) {
    const Tensor tokens = arena.alloc(DType::i32, {B, T});
    return std::pair(tokens, arena.alloc(DType::u8, {static_cast<int64_t>(program.slot_bytes())}));
  };
  allocate(measure);
  Arena arena("block times", measure.peak_bytes(), place), scratch("scratch", program.scratch_bytes(), place);
  const auto [tokens, slot] = allocate(arena);
  fill_zero(tokens, stream);
  Region region;
  LayerContext ctx{.params = params, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  const MicroBatch batch{.tokens = tokens, .targets = {}, .doc_start = {}};
  const PassArguments args{.batch = &batch, .rope_table = rope_table_on(stream)};
  Trace trace;
  Timeline timeline(stream);
  trace.set_listener(&timeline);
  const size_t ops = program.border();
  Trace* const before = std::exchange(stream.trace, &trace);
  for (int call = 0; call < kCalls; ++call)
    for (size_t i = 0; i < ops; ++i) {
      const Span span(&trace, "operation");
      program.run(i, i + 1, slot, ctx, args);
    }
  stream.trace = before;
  std::vector<std::vector<double>> times_s(ops);
  size_t i = 0;
  for (const Timeline::Row& row : timeline.rows())
    if (row.depth == 0) times_s[i++ % ops].push_back(row.end_s - row.begin_s);
  PartTimes parts;
  for (size_t op = 0; op < ops; ++op) {
    parts.add(program.ops()[op], median_of(std::span(times_s[op]).subspan(1)));
  }
  return parts.times;
}

}  // namespace ingot
