// Moving bytes between tensors, whatever device they are on.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// to = from: equal dtypes and shapes, contiguous, on any devices; they must not overlap. On a CUDA stream it
// is asynchronous: host memory must stay as it is until the stream has passed, and has to be pinned
// (Memory::kPinned) for the copy to overlap with anything.
void copy(const Tensor& to, const Tensor& from, Stream& stream);

// t = 0. Contiguous.
void fill_zero(const Tensor& t, Stream& stream);

// Returns once everything given to the stream is done; at once on the CPU.
void synchronize(Stream& stream);

}  // namespace ingot
