// FP8 on a CUDA device. Scales and counts stay on the device, so the host never waits for them. The
// numbers equal those of ops/cast_fp8.h (the rule of core/float8.h). A product of two 8-bit matrices
// requires both with the summed dim contiguous, which is why casts can also write a transposed copy.
// Defined in builds with CUDA.
//
// A linear with one scale per tensor casts x once, in forward, and keeps the transposed codes for backward;
// it casts dy once, for both products of backward, and w once per step, if its codes are held
// (Fp8State::hold_weights). A cast with a known scale reads 2 bytes per element and writes 1 per layout.
// Since backward does not need x itself, it recomputes no norms and activations whose codes are kept. A
// rowwise recipe casts a tensor only in the layout that the current product reads.
#pragma once

#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/linear_fused.h"

namespace ingot::cuda {

// Statistics of the casts of one tensor, on the device. They accumulate until the caller sets them to zero.
struct Fp8Meter {
  Tensor amax;    // (1) f32: largest |x|; NaN is ignored
  Tensor counts;  // (2) u32: number of values that saturated, and that underflowed
};

// Raises x.amax to the largest |x|, ignoring NaN. x: f32, bf16 or f16, contiguous or (N, C) with strided
// rows.
void raise_amax(const Tensor& x, Stream& stream);

// scale (1) f32 = fp8_scale(format, amax, floor), inverse (1) f32 = 1 / scale, as the products need it; then
// amax = 0, for the next tensor that raises it.
void set_fp8_scale(const Tensor& scale, const Tensor& inverse, const Tensor& amax, DType format,
                   Fp8ScaleFloor floor, Stream& stream);

// scale (1) f32 = value, inverse (1) f32 = 1 / value.
void put_fp8_scale(const Tensor& scale, const Tensor& inverse, float value, Stream& stream);

// Replaces the oldest amax of each tensor by that of `amaxes`, unless it is infinite; then sets scales =
// limits / (largest amax of the history) and inverses = 1 / scales. If all amaxes of a tensor are 0, its
// scale stays. If factor (1) f32 is NaN, nothing changes. scales, inverses, amaxes: (tensors, 4) f32, of
// which the first column counts. amaxes and factor are empty if only the scales are wanted.
void next_fp8_scales(const Tensor& scales, const Tensor& inverses, const Fp8Amaxes& history,
                     const Tensor& amaxes, const Tensor& factor, Stream& stream);

// to (f8e4m3 or f8e5m2, x's shape) = fp8(x * scale), scale (1) f32. Adds the cast's statistics to the
// meter; delayed scaling computes the next step's scale from the meter's amax.
void cast_to_fp8(const Tensor& to, const Tensor& x, const Tensor& scale, const Fp8Meter& meter,
                 Stream& stream);

// Casts x (N, C) in one pass into to (N, C), unless it is empty, and transposed (C, N).
void cast_to_fp8_both_ways(const Tensor& to, const Tensor& transposed, const Tensor& x, const Tensor& scale,
                           const Fp8Meter& meter, Stream& stream);

// One operand of a product; its summed dim is contiguous.
struct Fp8Operand {
  Tensor codes;    // (rows, K) f8e4m3 or f8e5m2
  Tensor inverse;  // f32: factor of the decoded values; (1), or (rows) for one per row
};

// Casts x (N, C) with a separate scale per row, a power of two computed from the row's amax (fp8_scale):
// to.codes (N, C) f8e4m3, to.inverse (N) = 1 / scales. REQUIRES: N and C are multiples of 8.
void cast_rows_to_fp8(const Fp8Operand& to, const Tensor& x, const Fp8Meter& meter, Stream& stream);

enum class Fp8ColumnScales { kEach, kOne };  // kOne: one scale from the amax of the whole tensor
// Casts x (N, C) with scales per column, transposed: to.codes (C, N), to.inverse (C). scales: (C) f32
// scratch. REQUIRES: N and C are multiples of 8.
void cast_columns_to_fp8(const Fp8Operand& to, const Tensor& x, const Tensor& scales, Fp8ColumnScales which,
                         const Fp8Meter& meter, Stream& stream);

struct Fp8ProductMode {
  bool accumulate = false;  // add to c
  bool is_fast = false;     // accumulates with about 14 bits between corrections; for forward products only
  float alpha = 1;          // factor of the product
  LinearTerms terms = {};   // c = base + the product + bias; base has c's dtype, shape and strides
  // f32 scratch of at least a row of c, for accumulate. Without a kernel that adds to c, as many rows of the
  // product as fit are computed here, and then added.
  Tensor sums = {};
};

// c (M, N) bf16, f16 or f32 = alpha a bᵀ, or c += alpha a bᵀ (f32 only), with a (M, K) and b (N, K). At
// most one of a and b is e5m2. Either both operands have one scale, or both have one per row. REQUIRES:
// K and N multiples of 16, rows contiguous and aligned to 16 bytes.
//
// cuBLASLt may lack a kernel for the whole of it. Then fast sums become exact ones, and a kernel of their own
// adds base, c or the bias, after the product was rounded to c's dtype; f32 results always get their bias so.
// KernelReport says which products were refused.
void matmul_fp8(const Tensor& c, const Fp8Operand& a, const Fp8Operand& b, const Fp8ProductMode& mode,
                Stream& stream);

}  // namespace ingot::cuda
