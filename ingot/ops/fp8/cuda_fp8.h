// FP8 on a CUDA device: scales and counts stay there, and nothing waits for them. The numbers are those of
// ops/cast_fp8.h (the rule of core/float8.h); products of two 8-bit matrices want both of them with the
// summed dim contiguous, which is what the transposed copy is for. Defined in builds with CUDA.
#pragma once

#include "ingot/ops/cast_fp8.h"

namespace ingot::cuda {

// What casts of one tensor did; on the device, and only ever grows until it is set to zero.
struct Fp8Meter {
  Tensor amax;    // (1) f32, largest |x|; NaN is passed over
  Tensor counts;  // (2) u32: values that saturated, values that underflowed
};

// amax (1) f32 = the larger of it and the largest |x|. x: f32, bf16 or f16, contiguous.
void raise_amax(const Tensor& amax, const Tensor& x, Stream& stream);

// scale (1) f32 = fp8_scale(format, amax, floor), inverse (1) f32 = 1 / scale, for the products.
void set_fp8_scale(const Tensor& scale, const Tensor& inverse, const Tensor& amax, DType format,
                   Fp8ScaleFloor floor, Stream& stream);

// scale (1) f32 = value, inverse (1) f32 = 1 / value.
void put_fp8_scale(const Tensor& scale, const Tensor& inverse, float value, Stream& stream);

// to (f8e4m3 or f8e5m2, x's shape) = fp8(x * scale), scale (1) f32. The meter's amax is raised to x's, which
// a delayed scale is made of at the next step.
void cast_to_fp8(const Tensor& to, const Tensor& x, const Tensor& scale, const Fp8Meter& meter,
                 Stream& stream);

// The same of x (N, C) in one pass into to (N, C) and transposed (C, N).
void cast_to_fp8_both_ways(const Tensor& to, const Tensor& transposed, const Tensor& x, const Tensor& scale,
                           const Fp8Meter& meter, Stream& stream);

// One operand of a product, the summed dim contiguous.
struct Fp8Operand {
  Tensor codes;    // (rows, K) f8e4m3 or f8e5m2
  Tensor inverse;  // (1) f32: what its decoded values are multiplied by; or (rows), one for each
};

// Rows of x (N, C) with a scale of its own for each, a power of two from its amax (fp8_scale): to.codes (N,
// C) f8e4m3, to.inverse (N) = 1 / the scales. C a multiple of 8.
void cast_rows_to_fp8(const Fp8Operand& to, const Tensor& x, const Fp8Meter& meter, Stream& stream);

enum class Fp8ColumnScales { kEach, kOne };  // kOne: of the whole tensor's amax
// The same of columns, transposed: to.codes (C, N), to.inverse (C). scales: scratch (C) f32. N and C
// multiples of 8.
void cast_columns_to_fp8(const Fp8Operand& to, const Tensor& x, const Tensor& scales, Fp8ColumnScales which,
                         const Fp8Meter& meter, Stream& stream);

struct Fp8ProductMode {
  bool accumulate = false;  // c +=
  bool is_fast = false;     // sums with about 14 bits between corrections, for forward products only
  float alpha = 1;          // factor of the product
};

// c (M, N) bf16, f16 or f32 = alpha a (M, K) bᵀ, b (N, K), or c += (f32). Not both may be e5m2. Both operands
// have one scale, or both one for each row. REQUIRES: K and N multiples of 16, rows contiguous and aligned to
// 16 bytes.
void matmul_fp8(const Tensor& c, const Fp8Operand& a, const Fp8Operand& b, const Fp8ProductMode& mode,
                Stream& stream);

}  // namespace ingot::cuda
