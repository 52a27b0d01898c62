// The loss of ops/cross_entropy.h from tiles of columns, so that no whole row of logits needs to exist.
// Tiles are folded into a running log-sum-exp (online softmax: Milakov & Gimelshein 2018,
// arXiv:1805.02867); with the log-sum-exp, the gradient of each tile is independent of the others
// (Wijmans et al. 2024, arXiv:2411.09009).
//
// Invalid targets behave as in ops/cross_entropy.h: on a CUDA device they give a NaN loss and no gradient.
//
//   begin(rows);  for each tile: fold(rows, tile);  finish(losses, lse, rows);
//   for each recomputed tile: gradient(d_tile, tile, lse)
//
// Alternatively, with 16 bits of memory per logit, no tile is recomputed:
//
//   begin(rows);  for each tile: fold_and_keep(kept, rows, tile);  finish(losses, lse, rows);
//   kept_gradient(d, kept, rows, lse)
#pragma once

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot {

// The running sums of a row over the tiles folded so far.
struct TileRow {
  double total;    // sum of exp(z_j - z_max)
  double z_sum;    // sum of the capped logits; only with label smoothing
  float x_max;     // the largest logit so far, before the cap
  float z_max;     // the same, capped
  float x_target;  // the target's logit, before the cap
  int32_t top;     // lowest column of x_max; -1 before the first tile
};

inline constexpr auto kTileRowBytes = static_cast<int64_t>(sizeof(TileRow));

// Elements of a tensor are numbers, so TileRows lie in a u8 tensor (N, kTileRowBytes).
inline Tensor alloc_tile_rows(Arena& arena, int64_t N) { return arena.alloc(DType::u8, {N, kTileRowBytes}); }
inline TileRow* tile_rows_of(const Tensor& rows) { return reinterpret_cast<TileRow*>(rows.as<uint8_t>()); }

// Columns [first, first + W) of the logits of N rows.
struct LogitTile {
  Tensor logits = {};  // (N, W) f32, contiguous
  int64_t first = 0;
  Tensor lse = {};      // (N) f32, from cross_entropy_finish; the folds do not read it
  Tensor targets = {};  // (N) i32
};

// Initialises rows (N) before the first tile. Here and below rows is a tensor of TileRows.
void cross_entropy_begin(const Tensor& rows, Stream& stream);

// Folds a tile into rows. The caller folds tiles from left to right. Columns from config.vocab on are
// padding.
void cross_entropy_fold(const Tensor& rows, const LogitTile& tile, const CrossEntropyConfig& config,
                        Stream& stream);

// rows = the merged sums of parts (P, N, kTileRowBytes) u8, where part p covers columns [p, p + 1) *
// part_columns. With the columns sharded over ranks it is called between fold and finish.
void cross_entropy_merge(const Tensor& rows, const Tensor& parts, const Tensor& targets, int64_t part_columns,
                         Stream& stream);

// losses and is_correct (may be absent) are as in cross_entropy; lse (N) f32 = log-sum-exp of the capped
// logits.
void cross_entropy_finish(const Tensor& losses, const Tensor& is_correct, const Tensor& lse,
                          const Tensor& rows, const Tensor& targets, const CrossEntropyConfig& config,
                          Stream& stream);

// d_tile (N, W) f32, bf16 or f16 = the gradient of a tile's logits; an f32 d_tile may alias tile.logits.
void cross_entropy_tile_gradient(const Tensor& d_tile, const LogitTile& tile,
                                 const CrossEntropyConfig& config, Stream& stream);

// The kept exponentials of all tiles: cap'(x_j) * exp(z_j - reference) * kept_scale. Every tile except
// the last has tile_columns columns. d below may alias values.
struct KeptExponentials {
  Tensor values;      // (N, W) f16
  Tensor references;  // (tiles, N) f32: a row's largest capped logit up to and including a tile
  int64_t tile_columns = 0;
};

// Returns a power of two such that the largest kept value is below f16's largest value; values up to
// 2^39 times smaller do not vanish.
float kept_scale(const CrossEntropyConfig& config);

// As fold, and also keeps the exponentials of the tile, which begins at column tile_index * tile_columns of
// kept.
void cross_entropy_fold_and_keep(const KeptExponentials& kept, int64_t tile_index, const Tensor& rows,
                                 const LogitTile& tile, const CrossEntropyConfig& config, Stream& stream);

// d (N, W) bf16 or f16 = the gradient of all tiles' logits, which `all` leaves out because kept has them;
// all.first is the logits' column at which kept begins. rows and all.lse are those of finish. REQUIRES: no
// cap with label smoothing, because the cap's slope is not kept separately.
void cross_entropy_kept_gradient(const Tensor& d, const KeptExponentials& kept, const Tensor& rows,
                                 const LogitTile& all, const CrossEntropyConfig& config, Stream& stream);

}  // namespace ingot
