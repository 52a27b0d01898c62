// The two 8-bit floats of the OCP 8-bit floating-point specification (Micikevicius et al. 2022,
// arXiv:2209.05433), and the conversion rule that every device follows:
//
//   Round to nearest, ties to even. A value that would round beyond the largest finite value, or an infinity,
//   becomes the largest finite value of its sign. NaN stays NaN.
//
// The conversion does not count values that saturated or vanished; ops/cast_fp8.h does.
//
//   f8e4m3  1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity; largest 448, smallest 2^-9
//   f8e5m2  1 sign, 5 exponent (bias 15), 2 mantissa bits; largest 57344, smallest 2^-16
//
// bf16 represents every value of both formats exactly.
#pragma once

#include <bit>
#include <cstdint>

#include "ingot/core/dtype.h"

namespace ingot {

struct E4m3Format {
  static constexpr int kMantissaBits = 3, kBias = 7;
  static constexpr uint32_t kMaxCode = 0x7e;      // code of the largest finite value
  static constexpr uint32_t kInfinityCode = 256;  // f8e4m3 has no infinity
  static constexpr float kMax = 448;
};

struct E5m2Format {
  static constexpr int kMantissaBits = 2, kBias = 15;
  static constexpr uint32_t kMaxCode = 0x7b;
  static constexpr uint32_t kInfinityCode = 0x7c;  // decoded, never produced
  static constexpr float kMax = 57344;
};

template <typename F>
struct Float8 {
  using Format = F;
  static constexpr float kMax = F::kMax;

  // Values up to this magnitude round to zero.
  static constexpr float kRoundsToZero =
      std::bit_cast<float>(uint32_t{126 + 1 - F::kBias - F::kMantissaBits} << 23);
  // The largest value that rounds to kMax. It is half a step above kMax if the code of kMax is even; if it is
  // odd, half a step rounds away from kMax.
  static constexpr float kRoundsToMax = std::bit_cast<float>(
      std::bit_cast<uint32_t>(F::kMax) + (1u << (22 - F::kMantissaBits)) - (F::kMaxCode & 1u));

  uint8_t bits;

  Float8() = default;
  explicit constexpr Float8(float value) : bits(encode(std::bit_cast<uint32_t>(value))) {}

  explicit constexpr operator float() const {
    const uint32_t code = bits & 0x7fu;
    const float tiny = static_cast<float>(code) * kSmallest;
    const float normal = std::bit_cast<float>((code << kShift) + (uint32_t{127 - F::kBias} << 23));
    const float finite = code < (1u << F::kMantissaBits) ? tiny : normal;
    const uint32_t special = code == F::kInfinityCode ? 0x7f800000u : 0x7fc00000u;
    const uint32_t magnitude = code > F::kMaxCode ? special : std::bit_cast<uint32_t>(finite);
    return std::bit_cast<float>(magnitude | (uint32_t{bits} & 0x80u) << 24);
  }

  // Returns true if the value is too large to round to the largest finite value.
  static constexpr bool saturates(float value) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0x7fffffffu) > kRoundsToMax;
  }
  // Returns true if a nonzero value rounds to zero.
  static constexpr bool underflows(float value) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
    return magnitude != 0 && magnitude <= std::bit_cast<uint32_t>(kRoundsToZero);
  }

 private:
  static constexpr int kShift = 23 - F::kMantissaBits;
  static constexpr int kSmallestExponent = 1 - F::kBias - F::kMantissaBits;  // log2 of the smallest value > 0
  static constexpr float kSmallest = std::bit_cast<float>(uint32_t{127 + kSmallestExponent} << 23);
  static constexpr uint32_t kFirstNormal = uint32_t{128 - F::kBias} << 23;  // bits of the smallest normal

  // The code of a normal magnitude, rounded to nearest even as if the format had unlimited exponents.
  static constexpr uint32_t rounded_code(uint32_t magnitude) {
    const uint32_t half = (1u << (kShift - 1)) - 1;
    return ((magnitude + half + ((magnitude >> kShift) & 1u)) >> kShift) -
           (uint32_t{127 - F::kBias} << F::kMantissaBits);
  }

  static constexpr uint8_t encode(uint32_t u) {
    const uint32_t magnitude = u & 0x7fffffffu;
    const uint32_t normal = rounded_code(magnitude);
    // The last mantissa bit of `step` is worth the smallest value, so adding it rounds to a multiple of
    // that value.
    const float step = std::bit_cast<float>(uint32_t{127 + 23 + kSmallestExponent} << 23);
    const uint32_t tiny =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + step) - std::bit_cast<uint32_t>(step);
    const uint32_t saturated = normal > F::kMaxCode ? F::kMaxCode : normal;
    const uint32_t finite = magnitude < kFirstNormal ? tiny : saturated;
    const uint32_t code = magnitude > 0x7f800000u ? 0x7fu : finite;
    return static_cast<uint8_t>(code | (u >> 24 & 0x80u));
  }
};

using f8e4m3 = Float8<E4m3Format>;
using f8e5m2 = Float8<E5m2Format>;

template <>
struct DTypeOf<f8e4m3> {
  static constexpr DType value = DType::f8e4m3;
};
template <>
struct DTypeOf<f8e5m2> {
  static constexpr DType value = DType::f8e5m2;
};

// The largest finite value of an 8-bit float.
constexpr float float8_max(DType format) { return format == DType::f8e5m2 ? f8e5m2::kMax : f8e4m3::kMax; }

}  // namespace ingot
