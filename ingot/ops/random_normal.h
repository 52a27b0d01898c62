// Normally distributed numbers (Box & Muller 1958) as a pure function of key and element index.
#pragma once

#include "ingot/core/philox.h"
#include "ingot/core/tensor.h"

namespace ingot {

// y[i] = std * random_normal(key, first_index + i), up to the rounding of its polynomials. The bits of
// an element depend on its index only, not on where y begins. y (n) f32.
void fill_normal(const Tensor& y, float std, const RandomKey& key, uint64_t first_index = 0);

}  // namespace ingot
