// Generation: Transformer appends tokens to a cache of keys and values and computes the next logits.
#include <algorithm>
#include <cmath>

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

std::vector<KvCache> Transformer::make_caches(Arena& arena, int64_t positions) const {
  std::vector<KvCache> caches(blocks_.size());
  for (KvCache& cache : caches) {
    cache.k = arena.alloc(compute_, {positions, tp_.slice(config_.kv_heads), config_.head_dim});
    cache.v = arena.alloc(compute_, {positions, tp_.slice(config_.kv_heads), config_.head_dim});
  }
  return caches;
}

Transformer::InferScratch Transformer::infer_scratch(Arena& arena, int64_t n, UnitRange units) const {
  const RecomputePlan plan = forward_only_plan(static_cast<int64_t>(block_count(units)));
  return {.saved = make_saved(arena, 1, n, plan, units), .h = own_rows(arena, n)};
}

size_t Transformer::infer_scratch_bytes(int64_t n, int64_t positions) const {
  size_t most = 0;
  // A rank may need more memory for fewer tokens: it holds all rows if the ranks do not divide their number
  // (which is so for n or n - 1), and fewer rows but extra buffers if they do. Attention has a kernel of its
  // own for one token that follows others.
  for (const int64_t tokens : {n, n - 1, n - n % tp_.count, int64_t{1}}) {
    if (tokens < 1) continue;
    Arena arena("inference plan");
    own_rows(arena, tokens);  // x of infer_units, which a pipeline takes from the same arena
    infer_scratch(arena, tokens, all_units());
    for (const int64_t S : {tokens, positions}) plan_units(arena, 1, tokens, S, false);
    all_rows(arena, tokens);
    most = std::max(most, arena.peak_bytes());
  }
  return most;
}

void Transformer::infer(LayerContext& ctx, const Tensor& tokens, std::vector<KvCache>& caches,
                        const Tensor& logits) const {
  infer_units(ctx, tokens, all_units(), {}, caches, logits);
  for (KvCache& cache : caches) cache.length += tokens.elements();
}

void Transformer::infer_units(LayerContext& ctx, const Tensor& tokens, UnitRange units, const Tensor& x,
                              std::vector<KvCache>& caches, const Tensor& logits) const {
  const int64_t n = tokens.elements();
  INGOT_CHECK(n >= 1 && caches.size() == blocks_.size(), "Transformer::infer: {} tokens, {} caches", n,
              caches.size());
  check_tensor(logits, DType::f32, {config_.vocab_padded()}, "Transformer::infer: logits");
  const ScratchScope scope(ctx.scratch);
  auto [saved, own] = infer_scratch(ctx.scratch, n, units);
  if (!has_embedding(units)) copy(stage_input(saved), x, ctx.stream);
  run_units(ctx, tokens.reshape({1, n}), {}, saved, own, &caches);
  if (!has_head(units)) return copy(x, saved.x, ctx.stream);
  const Tensor all = all_rows(ctx.scratch, n);
  const Tensor h = all ? all : own;
  ctx.region.enter(h, own, ctx.stream);
  const int64_t first = tp_.first(vocab_rows()), part = tp_.slice(vocab_rows());
  const Tensor own_logits = logits.rows(first, first + part);
  matmul(own_logits.reshape({1, part}), h.rows(n - 1, n), ctx.params.weight(head_weight()), MatmulForm::kNT,
         false, ctx.stream);
  ctx.region.gather("logits", logits, own_logits, ctx.stream);
  if (config_.cap.kind == CapKind::kNone) return;
  float* z = logits.as<float>();
  for (int64_t v = 0; v < config_.vocab; ++v)
    z[v] = static_cast<float>(apply_cap(config_.cap, static_cast<double>(z[v])));
}

}  // namespace ingot
