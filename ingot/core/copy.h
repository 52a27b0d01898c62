// Copies bytes between tensors on any devices.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// to = from. REQUIRES: equal dtypes and shapes; both contiguous; no overlap. The devices may differ. On a
// CUDA stream the copy is asynchronous: host memory must stay unchanged until the stream has done the
// copy, and must be pinned (Memory::kPinned) for the copy to overlap with other work.
void copy(const Tensor& to, const Tensor& from, Stream& stream);

// t = 0. REQUIRES: t is contiguous.
void fill_zero(const Tensor& t, Stream& stream);

// Blocks until all work submitted to the stream is done. Returns at once on the CPU.
void synchronize(Stream& stream);

}  // namespace ingot
