// Matrix products of a linear layer, row-major, accumulated in f32.
//
//   forward         y (M,N)  = x (M,K) · w (N,K)ᵀ       kNT
//   data gradient   dx (M,N) = dy (M,K) · w (K,N)        kNN
//   weight gradient dw (M,N) += dy (K,M)ᵀ · x (K,N)      kTN
//
// oneDNN computes them where it is built in and fast for the dtype; Ingot's own kernel otherwise. The choice
// depends on the machine, the dtypes and the shape, never on time, so equal runs give equal bits. Operands in
// f16 go to Ingot's own kernel, which widens them to f32 as it packs them.
#pragma once

#include <cstdint>

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

enum class MatmulForm { kNT, kNN, kTN };

// c = op(a) · op(b), or c += with accumulate. a and b: f32, bf16 or f16, both alike; c: f32, or for a and b
// of 16 bits either kind of those. Rows may be strided (a view of columns), the last dim is contiguous. c
// must not alias a or b. REQUIRES: accumulate only with c f32.
void matmul(const Tensor& c, const Tensor& a, const Tensor& b, MatmulForm form, bool accumulate,
            Stream& stream);

// The same with a factor: c = alpha op(a) · op(b), or c +=. Only a c that is f32 keeps all of its precision.
void scaled_matmul(const Tensor& c, const Tensor& a, const Tensor& b, MatmulForm form, float alpha,
                   bool accumulate, Stream& stream);

// "oneDNN 2.6.3 (avx2)", "portable": what computes products of this dtype here.
const char* matmul_engine(DType dtype, Device device = Device::kCpu);

}  // namespace ingot
