// The language-model head: linear layer and cross-entropy as one op. Its three kinds compute the same
// function and differ only in the order of sums.
//
//   kDense      computes the logits of all tokens at once
//   kChunked    processes chunks of tokens and computes the gradients in the same pass, while the chunk's
//               logits are in memory (Hsu et al. 2024, arXiv:2410.10989)
//   kRecompute  keeps only the log-sum-exp of every token; the gradient pass recomputes the logits in tiles
//               of tokens and columns (Wijmans et al. 2024, arXiv:2411.09009) and can skip tiles whose
//               gradient is negligible
//
// Only kDense has a buffer of (N, Vp).
//
// Precision of the products: kF32, kBf16 and kF16 take x and w in that dtype. kFp8 (after the FP8 head
// of the nanoGPT speedrun) rounds x and w to e4m3 once for both passes, rounds the f32 gradient of the
// logits to e5m2 once, accumulates in f32, and removes the scales from the products. Logits, loss and dw
// are always f32, except for what loss_dtype rounds. With kBf16Logits, the products on a CUDA device write
// the logits in bf16, and their gradient overwrites them (has_bf16_logits).
#pragma once

#include <array>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/cross_entropy.h"
#include "ingot/ops/cross_entropy_bf16.h"
#include "ingot/ops/cross_entropy_sharded.h"

namespace ingot {

enum class HeadKind { kDense, kChunked, kRecompute };
// kCompute: the dtype of x, which the caller resolves.
enum class HeadPrecision { kCompute, kF32, kBf16, kF16, kFp8 };
// HeadAccumulation is the method of summing dw over the chunks of one call: plain f32, or compensated
// (Kahan 1965).
enum class HeadAccumulation { kF32, kKahan };
// kStatic: x and w have fixed scales, and the gradient has fp8_head_gradient_scale. kCurrent: each
// tensor is scaled by fp8_scale of its amax, the gradient chunk by chunk (kRecompute: tile by tile).
enum class Fp8HeadScaling { kStatic, kCurrent };

struct LinearCrossEntropyConfig {
  CrossEntropyConfig loss;
  HeadKind kind = HeadKind::kChunked;
  HeadPrecision precision = HeadPrecision::kF32;
  LossDtype loss_dtype = LossDtype::kF32;  // REQUIRES unless kF32: kBf16, not kRecompute, whole columns
  HeadAccumulation accumulation = HeadAccumulation::kF32;
  int64_t chunk_tokens = 1024;  // ignored by kDense
  // kChunked in kBf16 or kF16 without keeps_exponentials computes f32 logits for this many tokens at a
  // time. The gradients of the whole chunk are collected in 16 bits, so that the products with them span
  // many tokens.
  int64_t logit_tokens = 1024;
  // Columns of a tile in kRecompute and with keeps_exponentials, and rows of w or dw that are decoded or
  // accumulated at a time.
  int64_t tile_columns = 4096;
  float filter = 0;  // kRecompute skips gradient tiles in which every |d_logit| / grad_scale is below this
  Fp8HeadScaling fp8_scaling = Fp8HeadScaling::kStatic;
  float fp8_x_scale = 2, fp8_w_scale = 32;
  // With vocabulary parallelism the rows of w are sharded over ranks: w and dw below are this rank's
  // rows, the losses are those of all columns, and dx is this rank's summand. kRecompute then scales the
  // FP8 gradient of each tile by the rank's own amax.
  ColumnShard columns = {};
  Device device = Device::kCpu;  // device of all tensors
};

// Returns true if the f32 logits exist for one tile of a chunk's columns at a time. Each logit is then
// kept as a 16-bit exponential, in the memory of its gradient, until the chunk's log-sum-exp is known
// (ops/loss/cross_entropy_tile.h), so w is read once per chunk. The CPU does this for kChunked in kBf16
// and kF16 with an f32 loss, unless label smoothing is combined with a cap.
bool keeps_exponentials(const LinearCrossEntropyConfig& config);

// Returns true if the logits are bf16 in memory and the gradient overwrites them: 4 bytes per logit move in
// the loss where f32 logits need 6. The numbers are those of rounded f32 logits.
bool has_bf16_logits(const LinearCrossEntropyConfig& config);

// Returns the static scale of the logits' gradient: 2^13 / grad_scale, i.e. 2^29 for the mean over
// 65,536 tokens. The scaled gradient has the same distance to e5m2's largest value for any number of
// tokens. A cap steeper than 1 lowers the scale.
float fp8_head_gradient_scale(const CrossEntropyConfig& loss);

// Statistics of the casts of one call. On a CUDA device only the element counts are set; scratch.fp8 has the
// rest.
struct Fp8HeadStats {
  Fp8Stats x, w, d_logits;
};

// Working memory of one call. Members that the configuration does not need are absent.
struct LinearCrossEntropyScratch {
  Tensor logits;    // f32: (logit tokens, Vp), or (chunk, tile) where columns are tiled; bf16: (chunk, Vp)
  Tensor d_logits;  // (chunk, Vp or tile) bf16 or f16; absent where the gradient overwrites the logits
  Tensor x8, w8;    // (N, C), (Vp, C) e4m3
  // For kFp8 on a CUDA device: transposed codes (C, N), (C, Vp) e4m3 and (Vp or tile, chunk) e5m2; d_logits
  // is then e5m2. The caller sets fp8 to the scales and statistics of x, w and the gradient of the logits.
  Tensor x8_transposed, w8_transposed, d_transposed;
  std::array<Fp8Place, 3> fp8;
  Tensor x_part, w_part;            // (chunk, C), (tile, C) bf16: decoded values of kFp8 on the CPU
  Tensor dx_sum;                    // f32: (chunk, C), for kRecompute (N, C)
  Tensor dw_part, dw_compensation;  // f32: (tile, C), (Vp, C): summand and compensation of the Kahan sum
  Tensor rows, lse;                 // TileRows, (tokens) f32; N tokens for kRecompute, else a chunk
  Tensor references;                // (tiles, chunk) f32: reference maxima of keeps_exponentials
  ColumnShardScratch shard;         // for the tokens whose logits exist at a time
};
// Allocates what linear_cross_entropy needs for these shapes. has_grads is false if no gradients will be
// computed.
LinearCrossEntropyScratch make_linear_cross_entropy_scratch(Arena& arena, int64_t N, int64_t C, int64_t Vp,
                                                            const LinearCrossEntropyConfig& config,
                                                            bool has_grads);

struct LinearCrossEntropyIn {
  Tensor x;        // (N, C) f32, bf16 or f16
  Tensor w;        // (Vp, C), x's dtype; for kFp8 any of the three
  Tensor targets;  // (N) i32
  // (N) f32: factors of the gradients of the rows' losses, or empty. REQUIRES if set: the CPU, and not kFp8.
  Tensor row_weights = {};
};

struct LinearCrossEntropyOut {
  Tensor losses;      // (N) f32
  Tensor is_correct;  // (N) u8, or absent
  Tensor dx;          // (N, C) x's dtype or f32, overwritten; absent if no gradients are wanted
  Tensor dw;          // (Vp, C) f32, added to or overwritten; absent if w is frozen
  bool adds_dw = true;
};

struct LinearCrossEntropyReport {
  Fp8HeadStats fp8;
  int64_t tiles = 0, filtered_tiles = 0;  // tiles of kRecompute's gradient pass
};

// Computes the losses (and gradients) of the targets given logits = x · wᵀ. scratch must have been made
// for these shapes and this config. Tensors must not alias.
LinearCrossEntropyReport linear_cross_entropy(const LinearCrossEntropyOut& out,
                                              const LinearCrossEntropyIn& in,
                                              const LinearCrossEntropyConfig& config,
                                              const LinearCrossEntropyScratch& scratch, Stream& stream);

}  // namespace ingot
