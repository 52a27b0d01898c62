// Fills a tensor with random normals for a measurement of products. A GPU computes products of zeros faster
// than products of random numbers, because it draws less power.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// t = normal numbers of standard deviation `scale`, from a sequence of 65521 numbers that repeats. The dtype
// is f32, bf16 or f16. Blocks until t is written. REQUIRES: t is contiguous.
void fill_normal(const Tensor& t, float scale, Stream& stream);

}  // namespace ingot
