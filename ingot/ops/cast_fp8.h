// Scaled casts to the 8-bit floats: q = fp8(x * scale) by the rule of core/float8.h, with what was lost
// counted. On this device an FP8 product is emulated exactly: an 8-bit float is a bf16 and so is its product
// with a power of two, so the bf16 product of decoded values, summed in f32, is what an FP8 unit computes.
//
// x: f32, bf16 or f16, contiguous. Nothing aliases. Stats are integers and a maximum, so they do not depend
// on the number of threads.
#pragma once

#include <cstdint>

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// What casts did to a tensor; the ops below add to it.
struct Fp8Stats {
  int64_t elements = 0;
  int64_t saturated = 0;    // beyond the largest finite value once scaled, infinities included
  int64_t underflowed = 0;  // not zero, but zero once cast
  float amax = 0;           // largest |x| before scaling; NaN is passed over

  void add(const Fp8Stats& other);
};

// What a CUDA device keeps of a tensor that is cast there (ops/fp8/cuda_fp8.h).
struct Fp8Place {
  Tensor scale, inverse;  // (1) f32, of the last cast
  Tensor fresh;           // (1) f32: the amax that a scale is made of
  Tensor amax, counts;    // (1) f32, (2) u32: what the casts of a step did
};

enum class Fp8ScaleFloor { kExact, kPowerOfTwo };

// max(format) / max(amax, 1e-12), worked out in double; kPowerOfTwo: rounded down to a power of two.
float fp8_scale(DType format, float amax, Fp8ScaleFloor floor);

// Largest |x|; NaN is passed over, 0 for no element.
float absolute_max(const Tensor& x, Stream& stream);

// to (f8e4m3 or f8e5m2, x's shape) = fp8(x * scale).
void cast_to_fp8(const Tensor& to, const Tensor& x, float scale, Fp8Stats& stats, Stream& stream);

// to (f32 or bf16, from's shape) = the values of `from`, exactly; still scaled.
void cast_from_fp8(const Tensor& to, const Tensor& from, Stream& stream);

// Both in one pass: to (bf16, x's shape) = the values of fp8(x * scale), still scaled.
void round_to_fp8(const Tensor& to, const Tensor& x, DType format, float scale, Fp8Stats& stats,
                  Stream& stream);

// Of x (N, C), with a scale of its own for every row or every column, a power of two from its amax
// (fp8_scale): to (bf16, (N, C)) = fp8(x * scale) / scale, which is exact.
void round_rows_to_fp8(const Tensor& to, const Tensor& x, DType format, Fp8Stats& stats, Stream& stream);
// amax: scratch (C) f32.
void round_columns_to_fp8(const Tensor& to, const Tensor& x, DType format, const Tensor& amax,
                          Fp8Stats& stats, Stream& stream);

}  // namespace ingot
