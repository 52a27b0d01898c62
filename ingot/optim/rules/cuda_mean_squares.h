// Squares over the rows or the columns of a matrix on a CUDA device: their means for NorMuon, their sums for
// Adafactor. The order of the sums depends only on the shape. Defined in builds with CUDA.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot::cuda {

// means (R) f32 = mean over each row of (x * scale * factor)^2. x (R, C) f32, contiguous; factor (1) f32,
// or empty for 1.
void row_mean_squares(const Tensor& means, const Tensor& x, float scale, const Tensor& factor,
                      Stream& stream);

// means (C) f32 = the same mean over each column. parts: scratch (kRowParts, C) f32 (ops/row_sum.h).
void column_mean_squares(const Tensor& means, const Tensor& x, float scale, const Tensor& factor,
                         const Tensor& parts, Stream& stream);

// sums (R) f32 += sum over each row of (x * scale * factor)^2; x as above.
void add_row_squares(const Tensor& sums, const Tensor& x, float scale, const Tensor& factor, Stream& stream);

// sums (C) f32 += the same sum over each column. parts as above.
void add_column_squares(const Tensor& sums, const Tensor& x, float scale, const Tensor& factor,
                        const Tensor& parts, Stream& stream);

// parts (kSquareParts of optim/cuda_update.h) f32 = partial sums of the squares of x (n) f32.
void sum_squares_of(const Tensor& parts, const Tensor& x, Stream& stream);

}  // namespace ingot::cuda
