// Generation: Transformer appends tokens to a cache of keys and values and computes the next logits.
#include <algorithm>
#include <limits>

#include "ingot/core/copy.h"
#include "ingot/nn/logit_cap.h"
#include "ingot/nn/transformer.h"
#include "ingot/ops/embedding.h"
#include "ingot/ops/matmul.h"

namespace ingot {

std::vector<KvCache> Transformer::make_caches(Arena& arena, int64_t slots, int64_t positions) const {
  INGOT_CHECK(slots * positions <= std::numeric_limits<int32_t>::max(),
              "Transformer::make_caches: {} slots of {} positions are too many", slots, positions);
  std::vector<KvCache> caches(layers_.blocks.size());
  for (size_t l = 0; l < caches.size(); ++l) {
    const int64_t heads = layers_.blocks[l].has_attention ? tp_.slice(config_.kv_heads, 1) : 0;
    const Shape shape{slots, positions, heads, config_.head_dim};
    caches[l].k = arena.alloc(compute_, shape);
    caches[l].v = arena.alloc(compute_, shape);
  }
  return caches;
}

Transformer::Built Transformer::infer_program(int64_t rows, UnitRange units, const CacheShape& caches,
                                              Device device) const {
  const std::array<int64_t, 6> key{rows,         units.first,      units.end,
                                   caches.slots, caches.positions, static_cast<int64_t>(device)};
  const std::lock_guard lock(infer_programs_->mutex);
  std::list<InferPrograms::Entry>& entries = infer_programs_->entries;
  const auto found = std::ranges::find(entries, key, &InferPrograms::Entry::key);
  if (found != entries.end()) {
    entries.splice(entries.begin(), entries, found);
    return found->built;
  }
  if (entries.size() == InferPrograms::kMax) entries.pop_back();
  entries.push_front(
      {key, build(Use::kGeneration, 1, rows, forward_only_plan(static_cast<int64_t>(block_count(units))),
                  units, device, {.caches = caches})});
  return entries.front().built;
}

Transformer::LogitScratch Transformer::logit_scratch(Arena& arena, int64_t N) const {
  LogitScratch scratch;
  if (tp_.rows(N) < N) scratch.all = arena.alloc(compute_, {N, config_.width});
  scratch.outputs = arena.alloc(compute_, {N, config_.width});
  return scratch;
}

Transformer::InferScratch Transformer::infer_scratch(Arena& arena, int64_t n, const Program& program) const {
  InferScratch scratch{.slot = arena.alloc(DType::u8, {static_cast<int64_t>(program.slot_bytes())})};
  if (rope_table_) scratch.rope = arena.alloc(DType::f32, {n, config_.rotated_dims()});
  if (layers_.embedding.positions >= 0) scratch.positions = arena.alloc(compute_, {n, config_.width});
  return scratch;
}

size_t Transformer::infer_scratch_bytes(int64_t n, const CacheShape& caches, Device device) const {
  size_t most = 0;
  // A rank may need more memory for fewer rows: it holds all rows if the ranks do not divide their number
  // (which is so for n or n - 1), and fewer rows but extra buffers if they do. Attention has a kernel of its
  // own for single tokens.
  for (const int64_t rows : {n, n - 1, n - n % tp_.count, int64_t{1}}) {
    if (rows < 1) continue;
    const Built built = infer_program(rows, all_units(), caches, device);
    Arena arena("inference plan", memory_of(device));
    // The messages of infer_units, which a pipeline takes from the same arena.
    arena.alloc(compute_, {largest_message(1, rows)});
    infer_scratch(arena, rows, *built.program);
    {
      const ScratchScope scope(arena);
      arena.alloc(DType::u8, {static_cast<int64_t>(built.program->scratch_bytes())});
    }
    logit_scratch(arena, rows);
    most = std::max(most, arena.peak_bytes());
  }
  return most;
}

void Transformer::infer(LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
                        const Tensor& logits) const {
  infer_units(ctx, batch, all_units(), {}, {}, caches, logits);
}

void Transformer::infer_units(LayerContext& ctx, const InferBatch& batch, UnitRange units, const Tensor& in,
                              const Tensor& out, const std::vector<KvCache>& caches,
                              const Tensor& logits) const {
  INGOT_CHECK(caches.size() == layers_.blocks.size(), "Transformer::infer: {} caches for {} blocks",
              caches.size(), layers_.blocks.size());
  const ScratchScope scope(ctx.scratch);
  const Built built = infer_program(batch.rows(), units, {caches.front().slots(), caches.front().positions()},
                                    ctx.stream.device);
  const auto [slot, rope, positions] = infer_scratch(ctx.scratch, batch.rows(), *built.program);
  // Gathers the rows of the tables of positions, so that the kernels need not know that the rows are of
  // several sequences.
  const auto gather = [&](const Tensor& rows, const Tensor& table) {
    embedding_forward(rows, batch.positions(), whole_table(table), {}, batch.rows(), 0, ctx.stream);
  };
  if (rope) gather(rope, rope_table_on(ctx.stream));
  if (has_embedding(units) && positions) {
    ctx.params.prefetch(0);
    ctx.params.wait_weights(0);
    gather(positions, ctx.params.weight(layers_.embedding.positions));
  }
  if (!has_embedding(units)) copy(built.program->tensor(built.input, slot), in, ctx.stream);
  const MicroBatch tokens{
      .tokens = batch.tokens().reshape({1, batch.rows()}), .targets = {}, .doc_start = {}};
  built.program->run(Section::kForward, slot, ctx,
                     {.batch = &tokens,
                      .rope_table = rope,
                      .infer = &batch,
                      .caches = &caches,
                      .positions = has_embedding(units) ? positions : Tensor{}});
  if (!has_head(units)) return copy(out, built.program->tensor(built.x, slot), ctx.stream);
  infer_logits(ctx, batch, built.program->tensor(built.norm, slot), logits);
}

void Transformer::infer_logits(LayerContext& ctx, const InferBatch& batch, const Tensor& own,
                               const Tensor& logits) const {
  const int64_t N = batch.rows(), outputs = batch.output_rows(), Vp = config_.vocab_padded();
  const LogitScratch scratch = logit_scratch(ctx.scratch, N);
  const Tensor all = scratch.all ? scratch.all : own;
  ctx.region.enter(all, own, ctx.stream);
  if (outputs == 0) return;
  check_tensor(logits, DType::f32, {outputs, Vp}, "Transformer::infer: logits");
  const bool are_all = batch.outputs_count() == batch.tokens_count();
  const Tensor h = are_all ? all : scratch.outputs.rows(0, outputs);
  if (!are_all) embedding_forward(h, batch.outputs(), whole_table(all), {}, outputs, 0, ctx.stream);
  ctx.params.wait_weights(params_[head_weight()].unit);
  if (tp_.count == 1) return multiply_by_weight(ctx, logits, h, head_weight());
  const Tensor w = ctx.params.weight(head_weight());
  const int64_t first = tp_.first(Vp), part = tp_.slice(Vp);
  for (int64_t i = 0; i < outputs; ++i) {  // the ranks gather row by row
    const Tensor row = logits.rows(i, i + 1).reshape({Vp}), own_part = row.rows(first, first + part);
    matmul(own_part.reshape({1, part}), h.rows(i, i + 1), w, MatmulForm::kNT, false, ctx.stream);
    ctx.region.gather("logits", row, own_part, ctx.stream);
  }
}

void Transformer::cap_logits(std::span<float> logits) const {
  if (config_.cap.kind == LogitCap::kNone) return;
  for (float& z : logits) z = static_cast<float>(apply_cap(config_.cap, static_cast<double>(z)));
}

}  // namespace ingot
