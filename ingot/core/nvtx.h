// Shows spans as NVTX ranges, which NVIDIA's profilers display next to a device's kernels.
#pragma once

#include <memory>

#include "ingot/core/trace.h"

namespace ingot {

// Without an attached profiler a range costs one pointer test. Returns null in builds without CUDA.
std::unique_ptr<SpanListener> nvtx_listener();

}  // namespace ingot
