// Embedding: out[n] = wte[tokens[n]] + wpe[n % T + first_position].
//
// Shapes: out, d_out (N, C); wte (V, C); wpe (positions, C), or absent for models without learned positions;
// out, wte and wpe f32, bf16 or f16, all of one dtype; tokens (N) i32; d_wte (V, C), d_wpe (positions, C)
// f32. All contiguous. T is the length of the N / T sequences; first_position is where each of them starts
// (behind a cache). Both are read only where there are positions.
//
// A token outside [0, V) is a kData error that names it and its index; on a CUDA device, where looking would
// mean waiting, it gives a row of NaN and no gradient.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

void embedding_forward(const Tensor& out, const Tensor& tokens, const Tensor& wte, const Tensor& wpe,
                       int64_t T, int64_t first_position, Stream& stream);

// d_wte[tokens[n]] += d_out[n]; d_wpe[n % T + first_position] += d_out[n] (d_wpe absent: positions are not
// learned). Every element is summed in order of n by one thread: the result does not depend on the number of
// threads.
void embedding_backward(const Tensor& d_wte, const Tensor& d_wpe, const Tensor& d_out, const Tensor& tokens,
                        int64_t T, int64_t first_position, Stream& stream);

// Rows [first, first + rows.dim(0)) of a table of V rows, the others of which are on other ranks.
struct TablePart {
  Tensor rows;
  int64_t first = 0, V = 0;
};

// The same of a part of the table (vocabulary parallelism, Shoeybi et al. 2019, arXiv:1909.08053): tokens
// whose row is elsewhere are read as rows of zeros, and add to no gradient here.
void embedding_part_forward(const Tensor& out, const Tensor& tokens, const TablePart& wte, const Tensor& wpe,
                            int64_t T, int64_t first_position, Stream& stream);
void embedding_part_backward(const TablePart& d_wte, const Tensor& d_wpe, const Tensor& d_out,
                             const Tensor& tokens, int64_t T, int64_t first_position, Stream& stream);

}  // namespace ingot
