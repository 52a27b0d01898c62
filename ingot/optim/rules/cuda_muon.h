// The elementwise kernels of the Newton-Schulz iteration on a CUDA device (optim/rules/newton_schulz.h); the
// products are those of ops/matmul. The host does not wait for the device. Defined in builds with CUDA.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot::cuda {

// to = factor * from, element by element. Each is f32 or bf16; to may be from.
void scale_into(const Tensor& to, const Tensor& from, float factor, Stream& stream);

// The divisor of a matrix before the iteration: of_norm * |x|_F + eps.
struct Normaliser {
  float of_norm, eps;
};

// to (f32 or bf16, x's shape; may be x) = x / (of_norm * |x|_F + eps). parts: scratch (kSquareParts + 1) f32.
void normalise(const Tensor& to, const Tensor& x, const Normaliser& by, const Tensor& parts, Stream& stream);

// b = of_a * a + of_squared * squared. a and b are both f32 or both bf16, squared is f32; b may be squared.
void combine(const Tensor& b, const Tensor& a, const Tensor& squared, float of_a, float of_squared,
             Stream& stream);

}  // namespace ingot::cuda
