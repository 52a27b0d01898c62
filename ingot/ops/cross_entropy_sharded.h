// The loss of ops/cross_entropy.h with the columns of the logits sharded over ranks (vocabulary
// parallelism, Shoeybi et al. 2019, arXiv:1909.08053). Each rank reduces its columns to a maximum, a sum
// of exponentials and the target's logit for every row; the ranks all-gather these, and each rank
// computes the gradient of its columns from the log-sum-exp of the whole row.
#pragma once

#include <functional>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot {

// This rank's shard of the columns. All ranks have equally many columns, and this rank's begin at `first`.
struct ColumnShard {
  int64_t first = 0;
  int count = 1;  // number of ranks
  // All-gathers bytes: all (count * n) u8 = own (n) of every rank, in rank order. All ranks call it with
  // equal n.
  std::function<void(const Tensor& all, const Tensor& own)> gather = {};
  // t (1) f32 = the largest t of all ranks; on the host, or on the device of the logits.
  std::function<void(const Tensor& t)> max = {};

  bool is_whole() const { return count == 1; }
};

struct ColumnShardScratch {
  Tensor rows;   // N TileRows (ops/loss/cross_entropy_tile.h)
  Tensor parts;  // (count, N, kTileRowBytes) u8: rows of every rank
  Tensor lse;    // (N) f32
  ColumnShardScratch rows_of(int64_t begin, int64_t end) const;  // the scratch of rows [begin, end)
};
ColumnShardScratch make_column_shard_scratch(Arena& arena, int64_t N, int count);

// Merges scratch.rows over the ranks: on return they describe all columns. part_columns is the number of
// columns per rank.
void merge_columns(const ColumnShardScratch& scratch, const Tensor& targets, int64_t part_columns,
                   const ColumnShard& shard, Stream& stream);

struct SharedLoss {
  Tensor losses;      // (N) f32
  Tensor is_correct;  // (N) u8, or absent
  Tensor d_logits;    // (N, W) f32 (may alias the logits), bf16 or f16, or absent
};
// As cross_entropy, for this rank's W columns of the logits (N, W). losses and is_correct cover all
// columns and are equal on every rank. config.vocab counts the columns of all ranks.
void shared_cross_entropy(const SharedLoss& out, const Tensor& logits, const Tensor& targets,
                          const CrossEntropyConfig& config, const ColumnShard& shard,
                          const ColumnShardScratch& scratch, Stream& stream);

}  // namespace ingot
