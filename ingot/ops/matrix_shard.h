// Copies between a matrix and a shard of it, whose elements lie in rectangles of the matrix.
//
// Shapes: matrix (R, C); shard (n), the elements of the first rectangle row by row, then those of the next.
// Both are contiguous and do not overlap.
#pragma once

#include <span>

#include "ingot/core/rect.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// The shard's elements of the matrix = shard. Both are f32.
void put_shard(const Tensor& matrix, const Tensor& shard, std::span<const Rect> rects, Stream& stream);

// shard (f32 or bf16) = its elements of the matrix (f32), rounded to nearest even.
void cut_shard(const Tensor& shard, const Tensor& matrix, std::span<const Rect> rects, Stream& stream);

}  // namespace ingot
