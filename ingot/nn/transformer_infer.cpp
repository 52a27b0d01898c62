// Generation: Transformer appends tokens to a cache of keys and values and computes the next logits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ingot/core/copy.h"
#include "ingot/nn/transformer.h"
#include "ingot/ops/matmul.h"

namespace ingot {
namespace {

double apply_cap(const LogitCapConfig& cap, double x) {
  switch (cap.kind) {
    case CapKind::kTanh:
      return cap.a * std::tanh(x / cap.a);
    case CapKind::kSigmoid:
      return cap.a / (1 + std::exp(-(x + cap.b) / cap.c));
    case CapKind::kNone:
      break;
  }
  return x;
}

}  // namespace

std::vector<KvCache> Transformer::make_caches(Arena& arena, int64_t slots, int64_t positions) const {
  INGOT_CHECK(slots * positions <= std::numeric_limits<int32_t>::max(),
              "Transformer::make_caches: {} slots of {} positions are too many", slots, positions);
  std::vector<KvCache> caches(blocks_.size());
  for (KvCache& cache : caches) {
    const Shape shape{slots, positions, tp_.slice(config_.kv_heads, 1), config_.head_dim};
    cache.k = arena.alloc(compute_, shape);
    cache.v = arena.alloc(compute_, shape);
  }
  return caches;
}

Transformer::InferScratch Transformer::infer_scratch(Arena& arena, int64_t n, UnitRange units) const {
  const RecomputePlan plan = forward_only_plan(static_cast<int64_t>(block_count(units)));
  InferScratch scratch{
      .saved = make_saved(arena, 1, n, plan, units), .h = own_rows(arena, n), .positions = {}};
  if (rope_table_) scratch.positions.rope = arena.alloc(DType::f32, {n, config_.head_dim});
  if (wpe_ >= 0) scratch.positions.learned = arena.alloc(compute_, {n, config_.width});
  return scratch;
}

size_t Transformer::infer_scratch_bytes(int64_t n, const CacheShape& caches, Device device) const {
  size_t most = 0;
  // A rank may need more memory for fewer rows: it holds all rows if the ranks do not divide their number
  // (which is so for n or n - 1), and fewer rows but extra buffers if they do. Attention has a kernel of its
  // own for single tokens.
  for (const int64_t rows : {n, n - 1, n - n % tp_.count, int64_t{1}}) {
    if (rows < 1) continue;
    Arena arena("inference plan", memory_of(device));
    own_rows(arena, rows);  // x of infer_units, which a pipeline takes from the same arena
    infer_scratch(arena, rows, all_units());
    plan_units(arena, 1, rows, false, caches);
    logit_scratch(arena, rows);
    most = std::max(most, arena.peak_bytes());
  }
  return most;
}

void Transformer::infer(LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
                        const Tensor& logits) const {
  infer_units(ctx, batch, all_units(), {}, caches, logits);
}

void Transformer::run_units(LayerContext& ctx, const InferBatch& batch, const CachedPositions& positions,
                            Saved& saved, const Tensor& h, const std::vector<KvCache>& caches) const {
  // Gathers the rows of the tables of positions, so that the kernels need not know that the rows are of several
  // sequences.
  const auto gather = [&](const Tensor& rows, const Tensor& table) {
    embedding_forward(rows, batch.positions(), table, {}, batch.rows(), 0, ctx.stream);
  };
  if (positions.rope) gather(positions.rope, rope_table_on(ctx.stream));
  if (has_embedding(saved.units)) {
    if (positions.learned) {
      ctx.params.prefetch(embedding_unit());
      gather(positions.learned, ctx.params.weight(wpe_));
    }
    embed(ctx, batch.tokens().reshape({1, batch.rows()}), stage_input(saved), positions);
  }
  std::vector<CachedTokens> cached;
  for (size_t l = 0; l < saved.attention.size(); ++l)
    cached.push_back({caches[first_block(saved.units) + l], batch});
  run_blocks(ctx, {}, positions.rope, saved, h, cached);
}

void Transformer::infer_units(LayerContext& ctx, const InferBatch& batch, UnitRange units, const Tensor& x,
                              const std::vector<KvCache>& caches, const Tensor& logits) const {
  INGOT_CHECK(caches.size() == blocks_.size(), "Transformer::infer: {} caches for {} blocks", caches.size(),
              blocks_.size());
  const ScratchScope scope(ctx.scratch);
  auto [saved, own, positions] = infer_scratch(ctx.scratch, batch.rows(), units);
  if (!has_embedding(units)) copy(stage_input(saved), x, ctx.stream);
  run_units(ctx, batch, positions, saved, own, caches);
  if (!has_head(units)) return copy(x, saved.x, ctx.stream);
  infer_logits(ctx, batch, own, logits);
}

void Transformer::infer_logits(LayerContext& ctx, const InferBatch& batch, const Tensor& own,
                               const Tensor& logits) const {
  const int64_t N = batch.rows(), outputs = batch.output_rows(), Vp = vocab_rows();
  const LogitScratch scratch = logit_scratch(ctx.scratch, N);
  const Tensor all = scratch.all ? scratch.all : own;
  ctx.region.enter(all, own, ctx.stream);
  if (outputs == 0) return;
  check_tensor(logits, DType::f32, {outputs, Vp}, "Transformer::infer: logits");
  const bool are_all = batch.outputs_count() == batch.tokens_count();
  const Tensor h = are_all ? all : scratch.outputs.rows(0, outputs);
  if (!are_all) embedding_forward(h, batch.outputs(), all, {}, outputs, 0, ctx.stream);
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
  if (config_.cap.kind == CapKind::kNone) return;
  for (float& z : logits) z = static_cast<float>(apply_cap(config_.cap, static_cast<double>(z)));
}

}  // namespace ingot
