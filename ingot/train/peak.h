// The machine's measured ceiling for matrix products: what MFU is a fraction of.
#pragma once

#include "ingot/core/tensor.h"

namespace ingot {

// GFLOP/s of a large square product in this dtype on the device, the best of a few; about 0.1 s.
double measure_product_peak(DType dtype, Device device = Device::kCpu, bool is_tf32 = false);

}  // namespace ingot
