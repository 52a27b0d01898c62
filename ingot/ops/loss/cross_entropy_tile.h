// The loss of ops/cross_entropy.h from tiles of columns, so that no row of logits has to exist as a whole:
// tiles are folded into a running log-sum-exp (online softmax: Milakov & Gimelshein 2018, arXiv:1805.02867),
// and given that, each tile's gradient stands alone (as Wijmans et al. 2024 do, arXiv:2411.09009).
//
// Targets that are no class: as in ops/cross_entropy.h, on a CUDA device a NaN loss and no gradient.
//
//   begin(rows);  for each tile: fold(rows, tile);  finish(losses, lse, rows);
//   for each tile, computed again: gradient(d_tile, tile, lse)
//
// or, with 16 bits of memory for each logit and no tile computed twice,
//
//   begin(rows);  for each tile: fold_and_keep(kept, rows, tile);  finish(losses, lse, rows);
//   kept_gradient(d, kept, rows, lse)
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot {

// What is known of a row once some of its tiles were seen.
struct TileRow {
  double total;    // sum of exp(z_j - z_max)
  double z_sum;    // of the capped logits; kept with label smoothing only
  float x_max;     // the largest logit so far, before the cap
  float z_max;     // and capped
  float x_target;  // before the cap
  int32_t top;     // column of x_max, the lowest
};

// Rows (N) of which no tile was seen. rows: (N, sizeof(TileRow)) u8, as in all of these.
void cross_entropy_begin(const Tensor& rows, Stream& stream);

// Folds columns [first, first + W) in. tile (N, W) f32, contiguous, read only; targets (N) i32. Tiles come
// from left to right. Columns from config.vocab up are padding.
void cross_entropy_fold(const Tensor& rows, const Tensor& tile, int64_t first, const Tensor& targets,
                        const CrossEntropyConfig& config, Stream& stream);

// rows = what parts (P, N, sizeof(TileRow)) u8 know together; part p has seen columns [p, p + 1) *
// part_columns. A pass of its own between fold and finish, where ranks share the columns.
void cross_entropy_merge(const Tensor& rows, const Tensor& parts, const Tensor& targets, int64_t part_columns,
                         Stream& stream);

// losses, is_correct (may be absent) as in cross_entropy; lse (N) f32 = log-sum-exp of the capped logits.
void cross_entropy_finish(const Tensor& losses, const Tensor& is_correct, const Tensor& lse,
                          const Tensor& rows, const Tensor& targets, const CrossEntropyConfig& config,
                          Stream& stream);

// d_tile (N, W) f32, bf16 or f16 = the gradient of a tile's logits; it may be the tile's memory (f32).
void cross_entropy_tile_gradient(const Tensor& d_tile, const Tensor& tile, int64_t first, const Tensor& lse,
                                 const Tensor& targets, const CrossEntropyConfig& config, Stream& stream);

// What is left of the logits of all tiles: cap'(x_j) * exp(z_j - reference), times kept_scale. Every tile but
// the last is tile_columns wide. d may be the memory of values.
struct KeptExponentials {
  Tensor values;      // (N, W) f16
  Tensor references;  // (tiles, N) f32: the row's largest capped logit up to and with a tile
  int64_t tile_columns = 0;
};

// A power of two: the largest value kept is below f16's largest, and what is 2^39 times smaller does not
// vanish.
float kept_scale(const CrossEntropyConfig& config);

// As fold; and keeps the exponentials of the tile, which begins at column tile * tile_columns of kept.
void cross_entropy_fold_and_keep(const KeptExponentials& kept, int64_t tile_index, const Tensor& rows,
                                 const Tensor& tile, int64_t first, const Tensor& targets,
                                 const CrossEntropyConfig& config, Stream& stream);

// d (N, W) bf16 or f16 = the gradient of all tiles' logits; first: the column of the logits that kept begins
// with; rows and lse as finish took and gave them. With label smoothing there must be no cap: its slope is
// not kept by itself.
void cross_entropy_kept_gradient(const Tensor& d, const KeptExponentials& kept, int64_t first,
                                 const Tensor& rows, const Tensor& lse, const Tensor& targets,
                                 const CrossEntropyConfig& config, Stream& stream);

}  // namespace ingot
