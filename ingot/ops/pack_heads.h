// Copies between the heads of a packed buffer and contiguous rows, on which ops on rows can work:
//   rows (B*T*H, D) = heads (B,T,H,D), or back.
// Both are f32, bf16 or f16, of one dtype, on one device. The heads of a token are adjacent; tokens may be
// strided.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

void pack_heads(const Tensor& rows, const Tensor& heads, Stream& stream);
void unpack_heads(const Tensor& heads, const Tensor& rows, Stream& stream);

}  // namespace ingot
