// Normally distributed numbers (Box & Muller 1958) as a pure function of key and element.
#pragma once

#include "ingot/core/philox.h"
#include "ingot/core/tensor.h"

namespace ingot {

// y[i] = std * random_normal(key, i), up to the rounding of its polynomials. y (n) f32.
void fill_normal(const Tensor& y, float std, const RandomKey& key);

}  // namespace ingot
