// Matrix products of a linear layer, row-major, accumulated in f32.
//
//   forward         y (M,N)  = x (M,K) · w (N,K)ᵀ       kNT
//   data gradient   dx (M,N) = dy (M,K) · w (K,N)        kNN
//   weight gradient dw (M,N) += dy (K,M)ᵀ · x (K,N)      kTN
//
// On the CPU oneDNN computes them if it is built in and fast for the dtype, Ingot's AMX kernel where that is
// faster, and Ingot's portable kernel otherwise, also for NT products of at most four rows. The choice
// depends only on the machine, the dtypes and the shape, so equal runs give equal bits. f16 operands go to
// the portable kernel, which widens them to f32 while packing them. On a CUDA device cuBLASLt computes them
// (ops/matmul/matmul_cublaslt.cpp).
#pragma once

#include <cstdint>

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

enum class MatmulForm { kNT, kNN, kTN };

// The gradient of a weight, and whether products are added to it or overwrite it.
struct WeightGradient {
  Tensor dw;  // f32
  bool adds = true;
};

// c = op(a) · op(b), or c += op(a) · op(b) with accumulate. a and b: f32, bf16 or f16, of the same
// dtype; c: f32, or any 16-bit dtype if a and b are 16-bit. Rows may be strided (a view of columns); the
// last dim is contiguous. c must not alias a or b. A product with K = 0 is zero. REQUIRES: accumulate
// only with c f32.
void matmul(const Tensor& c, const Tensor& a, const Tensor& b, MatmulForm form, bool accumulate,
            Stream& stream);

// As matmul, with a factor: c = alpha op(a) · op(b), or c += alpha op(a) · op(b). Only an f32 c keeps
// the full precision of the result.
void scaled_matmul(const Tensor& c, const Tensor& a, const Tensor& b, MatmulForm form, float alpha,
                   bool accumulate, Stream& stream);

// Returns the names of the engines that compute products of this dtype, such as "oneDNN 2.6.3",
// "portable", or "Ingot's AMX kernel and oneDNN 2.6.3", where the second computes products of fewer than 16
// rows.
const char* matmul_engine(DType dtype, Device device = Device::kCpu);

}  // namespace ingot
