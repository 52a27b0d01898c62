// Computes the gradient of a tile of logits as e5m2 codes, rounded once from f32, in the layouts of the
// two products that consume it. Defined in builds with CUDA.
#pragma once

#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/loss/cross_entropy_tile.h"

namespace ingot::cuda {

// amax (1) f32 = max(amax, largest |gradient| of the tile).
void raise_gradient_amax(const Tensor& amax, const LogitTile& tile, const CrossEntropyConfig& config,
                         Stream& stream);

// d (N, W) and transposed (W, N) f8e5m2 = the gradient of ops/cross_entropy.h times place.scale. Adds the
// statistics of the cast to place.amax and place.counts. REQUIRES: N and W are multiples of 8.
void cross_entropy_fp8_gradient(const Tensor& d, const Tensor& transposed, const LogitTile& tile,
                                const CrossEntropyConfig& config, const Fp8Place& place, Stream& stream);

}  // namespace ingot::cuda
