// Compensated addition (Kahan 1965): what rounding takes from a sum is kept and given back to the next term.
//   y = x - lost;  s = sum + y;  lost = (s - sum) - y;  sum = s
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// sum += x elementwise, `lost` carrying what was lost so far (zero at first); all f32, equal shapes,
// contiguous, nothing aliases.
void kahan_add(const Tensor& sum, const Tensor& lost, const Tensor& x, Stream& stream);

}  // namespace ingot
