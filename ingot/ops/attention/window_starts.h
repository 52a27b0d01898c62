// A sliding window as a mask of documents, for kernels that know only the latter. Defined in builds with CUDA.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot::cuda {

// starts[b][t] = max(doc_start[b][t], t - window + 1, 0): the first key that query t sees. starts and doc_start
// (B, T) i32; doc_start may be absent, which counts as zeros.
void window_starts(const Tensor& starts, const Tensor& doc_start, int64_t window, Stream& stream);

}  // namespace ingot::cuda
