// The loss of ops/cross_entropy.h where ranks share the columns of the logits (vocabulary parallelism,
// Shoeybi et al. 2019, arXiv:1909.08053): each folds its columns into a maximum, a sum of exponentials and
// the target's logit of every row, all learn what all know, and from the log-sum-exp of the whole each has
// its gradient.
#pragma once

#include <functional>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot {

// This rank's columns: as many as every other has, from `first` on.
struct ColumnShare {
  int64_t first = 0;
  int count = 1;  // ranks
  // all (count * n) u8 = the ranks' own (n), in order of the ranks. All ranks call alike.
  std::function<void(const Tensor& all, const Tensor& own)> gather = {};

  bool is_whole() const { return count == 1; }
};

struct ColumnShareScratch {
  Tensor rows;   // (N, sizeof(TileRow)) u8
  Tensor parts;  // (count, N, sizeof(TileRow)) u8: every rank's rows
  Tensor lse;    // (N) f32
  ColumnShareScratch rows_of(int64_t begin, int64_t end) const;  // for so many rows
};
ColumnShareScratch make_column_share_scratch(Arena& arena, int64_t N, int count);

// scratch.rows of this rank's columns become those of all columns; part_columns: how many each rank has.
void merge_columns(const ColumnShareScratch& scratch, const Tensor& targets, int64_t part_columns,
                   const ColumnShare& share, Stream& stream);

// The largest of the ranks' values.
float max_over_ranks(float value, const ColumnShareScratch& scratch, const ColumnShare& share);

struct SharedLoss {
  Tensor losses;      // (N) f32
  Tensor is_correct;  // (N) u8, or absent
  Tensor d_logits;    // (N, W) f32 (logits' memory will do), bf16 or f16, or absent
};
// As cross_entropy, of this rank's W columns of the logits (N, W). losses and is_correct are those of all
// columns, on every rank. config.vocab counts the columns of all ranks.
void shared_cross_entropy(const SharedLoss& out, const Tensor& logits, const Tensor& targets,
                          const CrossEntropyConfig& config, const ColumnShare& share,
                          const ColumnShareScratch& scratch, Stream& stream);

}  // namespace ingot
