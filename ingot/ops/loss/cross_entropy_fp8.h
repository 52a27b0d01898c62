// The gradient of a tile of logits as e5m2 codes, rounded once, from f32, in the layouts of both products
// that it goes into. On a CUDA device; defined in builds with CUDA.
#pragma once

#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/cross_entropy.h"

namespace ingot::cuda {

// Columns [first, first + W) of some rows' logits.
struct LogitTile {
  Tensor logits;  // (N, W) f32, contiguous
  int64_t first;
  Tensor lse;      // (N) f32, of cross_entropy_finish
  Tensor targets;  // (N) i32
};

// amax (1) f32 = the larger of it and the largest |gradient| of the tile.
void raise_gradient_amax(const Tensor& amax, const LogitTile& tile, const CrossEntropyConfig& config,
                         Stream& stream);

// d (N, W) and turned (W, N) f8e5m2 = the gradient of ops/cross_entropy.h times place.scale; what that did is
// added to place.amax and place.counts. N and W multiples of 8.
void cross_entropy_fp8_gradient(const Tensor& d, const Tensor& turned, const LogitTile& tile,
                                const CrossEntropyConfig& config, const Fp8Place& place, Stream& stream);

}  // namespace ingot::cuda
