#include "ingot/ops/cross_entropy_sharded.h"

#include "ingot/ops/loss/cross_entropy_tile.h"

namespace ingot {
namespace {

// Returns the first `bytes` of a scratch tensor.
Tensor first_bytes(const Tensor& t, int64_t bytes) { return t.reshape({t.elements()}).rows(0, bytes); }

}  // namespace

ColumnShardScratch ColumnShardScratch::rows_of(int64_t begin, int64_t end) const {
  const int64_t n = end - begin, count = parts.dim(0);
  return {.rows = rows.rows(begin, end),
          .parts = first_bytes(parts, count * n * kTileRowBytes).reshape({count, n, kTileRowBytes}),
          .lse = lse.rows(begin, end)};
}

ColumnShardScratch make_column_shard_scratch(Arena& arena, int64_t N, int count) {
  ColumnShardScratch scratch;
  scratch.rows = alloc_tile_rows(arena, N);
  scratch.parts = arena.alloc(DType::u8, {count, N, kTileRowBytes});
  scratch.lse = arena.alloc(DType::f32, {N});
  return scratch;
}

void merge_columns(const ColumnShardScratch& scratch, const Tensor& targets, int64_t part_columns,
                   const ColumnShard& shard, Stream& stream) {
  const Tensor& rows = scratch.rows;
  shard.gather(first_bytes(scratch.parts, scratch.parts.elements()), rows.reshape({rows.elements()}));
  cross_entropy_merge(rows, scratch.parts, targets, part_columns, stream);
}

void shared_cross_entropy(const SharedLoss& out, const Tensor& logits, const Tensor& targets,
                          const CrossEntropyConfig& config, const ColumnShard& shard,
                          const ColumnShardScratch& scratch, Stream& stream) {
  const LogitTile tile{.logits = logits, .first = shard.first, .lse = scratch.lse, .targets = targets};
  cross_entropy_begin(scratch.rows, stream);
  cross_entropy_fold(scratch.rows, tile, config, stream);
  merge_columns(scratch, targets, logits.dim(1), shard, stream);
  cross_entropy_finish(out.losses, out.is_correct, scratch.lse, scratch.rows, targets, config, stream);
  if (!out.d_logits) return;
  cross_entropy_tile_gradient(out.d_logits, tile, config, stream);
}

}  // namespace ingot
