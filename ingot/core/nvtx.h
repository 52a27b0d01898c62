// Spans as NVTX ranges, which NVIDIA's profilers show beside the kernels of a device.
#pragma once

#include <memory>

#include "ingot/core/trace.h"

namespace ingot {

// Without a profiler around the process a range costs a test of a pointer. Null in builds without CUDA.
std::unique_ptr<SpanListener> nvtx_listener();

}  // namespace ingot
