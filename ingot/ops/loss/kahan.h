// Compensated addition (Kahan 1965): the rounding error of each addition is subtracted from the next term.
//   y = x - lost;  s = sum + y;  lost = (s - sum) - y;  sum = s
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// sum += x elementwise. `lost` carries the accumulated rounding error; it is zero at first. All are f32,
// of equal shapes, contiguous, and must not alias.
void kahan_add(const Tensor& sum, const Tensor& lost, const Tensor& x, Stream& stream);

}  // namespace ingot
