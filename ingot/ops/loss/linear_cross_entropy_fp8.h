// The FP8 head on a CUDA device. Internal to ops/linear_cross_entropy; defined in builds with CUDA.
#pragma once

#include "ingot/ops/linear_cross_entropy.h"

namespace ingot::cuda {

// linear_cross_entropy in HeadPrecision::kFp8: x and w are cast once, in the layouts of all three products;
// the gradient of a chunk's (kRecompute: a tile's) logits goes from f32 to e5m2 as it is made. Scales stay on
// the device, and so do the counts, in scratch.fp8; the report has numbers of elements only. REQUIRES:
// tokens, those of a chunk, C, Vp and the columns of a tile are multiples of 16; no filter, whole columns.
LinearCrossEntropyReport linear_cross_entropy_fp8(const LinearCrossEntropyOut& out,
                                                  const LinearCrossEntropyIn& in,
                                                  const LinearCrossEntropyConfig& config,
                                                  const LinearCrossEntropyScratch& scratch, Stream& stream);

}  // namespace ingot::cuda
