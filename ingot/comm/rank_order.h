// Reduces what the ranks sent, in rank order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ingot/comm/communicator.h"

namespace ingot {

// out[i] = op over r of inputs[r * n + i], with r = 0 .. ranks - 1 in that order. 16-bit floats are added in
// f32 and rounded once. inputs has ranks * n elements of dtype `in`; out has n elements of `out_dtype`, which
// equals `in` or is f32 if `in` is bf16 or f16. out may alias the first n elements of inputs if the dtypes
// are equal.
void reduce_in_rank_order(void* out, DType out_dtype, const void* inputs, DType in, int ranks, int64_t n,
                          ReduceOp op);

}  // namespace ingot
