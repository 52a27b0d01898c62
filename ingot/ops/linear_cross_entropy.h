// The language-model head: linear layer and cross-entropy as one op, in three kinds that give the same
// numbers but for the order of sums.
//
//   kDense      the logits of all tokens at once
//   kChunked    chunk by chunk of tokens, gradients in the same pass, while a chunk's logits are at hand
//               (Hsu et al. 2024, arXiv:2410.10989)
//   kRecompute  only the log-sum-exp of every token is kept; the gradient pass computes the logits again,
//               tile by tile of tokens and columns (Wijmans et al. 2024, arXiv:2411.09009), and may leave out
//               tiles whose gradient is next to nothing
//
// kDense alone has a buffer of (N, Vp).
//
// Precision of the products: kF32, kBf16 and kF16 take x and w of that dtype. kFp8 (after the speed-run's FP8
// head) rounds x and w to e4m3 once for both passes, and the logits' gradient to e5m2, once, from f32; it
// sums in f32 and takes the scales out of the products. Logits, loss and dw are f32 always, but for what
// loss_dtype rounds on purpose.
#pragma once

#include <array>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/cross_entropy.h"
#include "ingot/ops/loss/cross_entropy_bf16.h"
#include "ingot/ops/loss/cross_entropy_share.h"

namespace ingot {

enum class HeadKind { kDense, kChunked, kRecompute };
enum class HeadPrecision { kF32, kBf16, kF16, kFp8 };
// Of dw over the chunks of one call: plain f32, or compensated (Kahan 1965).
enum class HeadAccumulation { kF32, kKahan };
// kStatic: fixed scales of x and w, and fp8_head_gradient_scale. kCurrent: fp8_scale of each tensor's amax,
// the gradient's chunk by chunk.
enum class Fp8HeadScaling { kStatic, kCurrent };

struct LinearCrossEntropyConfig {
  CrossEntropyConfig loss;
  HeadKind kind = HeadKind::kChunked;
  HeadPrecision precision = HeadPrecision::kF32;
  LossDtype loss_dtype = LossDtype::kF32;  // another one: with kBf16 and without kRecompute
  HeadAccumulation accumulation = HeadAccumulation::kF32;
  int64_t chunk_tokens = 1024;  // kDense: not read
  // kBf16 or kF16, and kChunked, unless keeps_exponentials: f32 logits of so many tokens at a time; a chunk's
  // gradients are collected in 16 bits, so that the products with them are of many tokens.
  int64_t logit_tokens = 1024;
  // Of kRecompute, of keeps_exponentials, and wherever a part of w or dw is worked on.
  int64_t tile_columns = 4096;
  float filter = 0;  // kRecompute: tiles whose every |d_logit| / grad_scale is below add nothing
  Fp8HeadScaling fp8_scaling = Fp8HeadScaling::kStatic;
  float fp8_x_scale = 2, fp8_w_scale = 32;
  // Where ranks share the rows of w: w and dw below have this rank's, losses are those of all, and dx is this
  // rank's part of a sum. kRecompute scales the FP8 gradient of each of its tiles by itself.
  ColumnShare columns = {};
  Device device = Device::kCpu;  // of all tensors
};

// Whether f32 logits exist tile by tile of a chunk's columns only: each is left as an exponential in 16 bits,
// in the memory of its gradient, until the chunk's log-sum-exp is known (ops/loss/cross_entropy_tile.h). So w is
// read once for a whole chunk. On the CPU kChunked does so in kBf16 and kF16, but under label smoothing
// together with a cap.
bool keeps_exponentials(const LinearCrossEntropyConfig& config);

// The static scale of the logits' gradient: 2^13 / grad_scale, so 2^29 for the mean over 65,536 tokens, and
// as far below e5m2's largest value for any other number of them. A cap steeper than 1 lowers it.
float fp8_head_gradient_scale(const CrossEntropyConfig& loss);

// What the casts of one call did; on a CUDA device the numbers of elements, and scratch.fp8 has the rest.
struct Fp8HeadStats {
  Fp8Stats x, w, d_logits;
};

// Working memory of one call; absent members are not needed.
struct LinearCrossEntropyScratch {
  Tensor logits;    // (logit tokens, Vp), or where there are tiles (chunk, tile): f32
  Tensor d_logits;  // (chunk, Vp or tile) bf16 or f16; in f32 the logits' memory serves
  Tensor x8, w8;    // (N, C), (Vp, C) e4m3
  // Of kFp8 on a CUDA device: (C, N), (C, Vp) e4m3; (Vp or tile, chunk) e5m2, beside a d_logits of e5m2; and
  // places of x, w and the gradient of the logits, which the caller puts here.
  Tensor x8_turned, w8_turned, d_turned;
  std::array<Fp8Place, 3> fp8;
  Tensor x_part, w_part;     // (chunk, C), (tile, C) bf16: decoded
  Tensor dx_sum;             // (chunk, C), of kRecompute (N, C): f32
  Tensor dw_part, dw_lost;   // (tile, C), (Vp, C) f32: what is added, and what additions lost
  Tensor rows, lse;          // of kRecompute N, else chunk: (tokens, sizeof(TileRow)) u8, (tokens) f32
  Tensor references;         // (tiles, chunk) f32, of the kept exponentials
  ColumnShareScratch share;  // of the tokens whose logits exist at a time
};
// dx_dtype: of the gradient to come; without gradients has_grads is false.
LinearCrossEntropyScratch make_linear_cross_entropy_scratch(Arena& arena, int64_t N, int64_t C, int64_t Vp,
                                                            const LinearCrossEntropyConfig& config,
                                                            bool has_grads);

struct LinearCrossEntropyIn {
  Tensor x;        // (N, C) f32, bf16 or f16
  Tensor w;        // (Vp, C) like x; for kFp8 any of them
  Tensor targets;  // (N) i32
};

struct LinearCrossEntropyOut {
  Tensor losses;      // (N) f32
  Tensor is_correct;  // (N) u8, or absent
  Tensor dx;          // (N, C) x's dtype or f32, overwritten; absent: no gradients are wanted
  Tensor dw;          // (Vp, C) f32, +=
};

struct LinearCrossEntropyReport {
  Fp8HeadStats fp8;
  int64_t tiles = 0, filtered_tiles = 0;  // of kRecompute's gradient pass
};

// Losses (and gradients) of targets under logits = x · wᵀ. scratch: made for these shapes and this config.
// Nothing may alias.
LinearCrossEntropyReport linear_cross_entropy(const LinearCrossEntropyOut& out,
                                              const LinearCrossEntropyIn& in,
                                              const LinearCrossEntropyConfig& config,
                                              const LinearCrossEntropyScratch& scratch, Stream& stream);

}  // namespace ingot
