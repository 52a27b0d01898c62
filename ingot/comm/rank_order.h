// Reductions of what the ranks sent, in order of the ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ingot/comm/communicator.h"

namespace ingot {

// out[i] = op over r of parts[r * n + i], r = 0 .. ranks - 1 in that order; 16-bit floats are added in f32
// and rounded once. parts: ranks * n elements of dtype `in`; out: n of `out_dtype`, which is `in`, or f32 for
// bf16. out may be parts' first n elements if the dtypes are equal.
void reduce_in_rank_order(void* out, DType out_dtype, const void* parts, DType in, int ranks, int64_t n,
                          ReduceOp op);

}  // namespace ingot
