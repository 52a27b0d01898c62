// Scaled casts to the 8-bit floats: q = fp8(x * scale) by the rule of core/float8.h. The casts count
// saturated and underflowed values. The CPU emulates an FP8 product exactly: an 8-bit float, and its
// product with a power of two, are exactly representable in bf16, so the bf16 product of the decoded
// values, accumulated in f32, equals what an FP8 unit computes.
//
// x: f32, bf16 or f16, contiguous. Tensors must not alias. The statistics are integers and a maximum, so
// they do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// Statistics of the casts of a tensor. The ops below add to them.
struct Fp8Stats {
  int64_t elements = 0;
  int64_t saturated = 0;    // scaled values beyond the largest finite value, including infinities
  int64_t underflowed = 0;  // nonzero values that became zero
  float amax = 0;           // largest |x| before scaling; NaN is ignored

  void add(const Fp8Stats& other);
};

// The device tensors that belong to a tensor cast to FP8 on a CUDA device (ops/cuda_fp8.h).
struct Fp8Place {
  Tensor scale, inverse;  // (1) f32: the scale of the last cast and its reciprocal
  Tensor fresh;           // (1) f32: the amax from which current scaling computes the scale, which zeroes it
  Tensor amax, counts;    // (1) f32, (2) u32: statistics of a step's casts, as Fp8Meter
};

// The amaxes of past steps on a CUDA device, from which delayed scaling computes the scales of the next step.
struct Fp8Amaxes {
  Tensor amaxes;  // (tensors, steps) f32, 0 where no step has been recorded
  Tensor next;    // (tensors) u32: the column that the next amax replaces
  Tensor limits;  // (tensors) f32: scale times largest amax
};

enum class Fp8ScaleFloor { kExact, kPowerOfTwo };

// Returns max(format) / max(amax, 1e-12), computed in double. kPowerOfTwo rounds it down to a power of two.
float fp8_scale(DType format, float amax, Fp8ScaleFloor floor);

// Returns the largest |x|, ignoring NaN; 0 if x is empty.
float absolute_max(const Tensor& x, Stream& stream);

// Raises x.amax to the largest |x|, ignoring NaN, on a CUDA device. x: (N, C), rows may be strided.
void raise_amax(const Tensor& x, Stream& stream);

// to (f8e4m3 or f8e5m2, x's shape) = fp8(x * scale).
void cast_to_fp8(const Tensor& to, const Tensor& x, float scale, Fp8Stats& stats, Stream& stream);

// to (f32 or bf16, from's shape) = the decoded values of `from`, exact and still scaled.
void cast_from_fp8(const Tensor& to, const Tensor& from, Stream& stream);

// Casts and decodes in one pass: to (bf16, x's shape) = the values of fp8(x * scale), still scaled.
void round_to_fp8(const Tensor& to, const Tensor& x, DType format, float scale, Fp8Stats& stats,
                  Stream& stream);

// Round x (N, C) with a separate scale for every row or every column: a power of two computed from its
// amax (fp8_scale). to (bf16, (N, C)) = fp8(x * scale) / scale, which is exact.
void round_rows_to_fp8(const Tensor& to, const Tensor& x, DType format, Fp8Stats& stats, Stream& stream);
// amax: (C) f32 scratch.
void round_columns_to_fp8(const Tensor& to, const Tensor& x, DType format, const Tensor& amax,
                          Fp8Stats& stats, Stream& stream);

}  // namespace ingot
