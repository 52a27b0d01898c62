// The FP8 head on a CUDA device. Internal to ops/linear_cross_entropy; defined in builds with CUDA.
#pragma once

#include "ingot/ops/linear_cross_entropy.h"

namespace ingot::cuda {

// Computes linear_cross_entropy in HeadPrecision::kFp8. x and w are cast once, to the layouts of all three
// products. The gradient of the logits of a chunk (kRecompute: of a tile) is rounded from f32 to e5m2 when
// it is computed. Scales and counts stay on the device, in scratch.fp8; the returned report has only the
// numbers of elements. REQUIRES: the tokens, chunk tokens, C, Vp (of this rank) and tile columns are
// multiples of 16; no filter.
LinearCrossEntropyReport linear_cross_entropy_fp8(const LinearCrossEntropyOut& out,
                                                  const LinearCrossEntropyIn& in,
                                                  const LinearCrossEntropyConfig& config,
                                                  const LinearCrossEntropyScratch& scratch, Stream& stream);

}  // namespace ingot::cuda
