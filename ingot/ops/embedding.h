// Embedding: out[n] = wte[tokens[n]] + wpe[n % T + first_position].
//
// Shapes: out, d_out (N, C); wte (V, C); wpe (positions, C), or absent for models without learned positions.
// out, wte and wpe are f32, bf16 or f16, all of one dtype. tokens (N) i32; d_wte (V, C), d_wpe (positions,
// C) f32. All are contiguous. T is the length of each of the N / T sequences; first_position is the position
// of each sequence's first token (nonzero behind a KV cache). Both are read only if wpe or d_wpe is present.
//
// A token outside [0, V) is a kData error that names the token and its index. On a CUDA device, where
// this check would synchronise, such a token gives a row of NaN and no gradient.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// Rows [first, first + rows.dim(0)) of a table of V rows whose other rows are on other ranks (vocabulary
// parallelism, Shoeybi et al. 2019, arXiv:1909.08053).
struct TableSlice {
  Tensor rows;
  int64_t first = 0, V = 0;
};
inline TableSlice whole_table(const Tensor& rows) { return {.rows = rows, .first = 0, .V = rows.dim(0)}; }

// Tokens whose row is on another rank read a row of zeros.
void embedding_forward(const Tensor& out, const Tensor& tokens, const TableSlice& wte, const Tensor& wpe,
                       int64_t T, int64_t first_position, Stream& stream);

// d_wte[tokens[n]] += d_out[n], unless the row is on another rank; d_wpe[n % T + first_position] += d_out[n].
// d_wpe is absent if positions are not learned. One thread sums each element in order of n, so the result
// does not depend on the number of threads.
void embedding_backward(const TableSlice& d_wte, const Tensor& d_wpe, const Tensor& d_out,
                        const Tensor& tokens, int64_t T, int64_t first_position, Stream& stream);

}  // namespace ingot
