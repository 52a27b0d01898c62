// IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 mantissa bits; largest 65504, smallest 2^-24.
// Conversion rounds to nearest, ties to even. A value that rounds beyond the largest becomes infinity with
// its sign; NaN becomes a quiet NaN. The bits equal those of the hardware conversions (F16C). The code has
// no branches, so that the compiler can vectorise loops. ops/simd/vec.h uses the hardware instructions.
#pragma once

#include <bit>
#include <cstdint>

#include "ingot/core/dtype.h"

namespace ingot {

struct f16 {
  static constexpr float kMax = 65504;

  uint16_t bits;

  f16() = default;
  explicit constexpr f16(float value) : bits(encode(std::bit_cast<uint32_t>(value))) {}

  explicit constexpr operator float() const {
    const uint32_t code = bits & 0x7fffu;
    const uint32_t tiny = std::bit_cast<uint32_t>(static_cast<float>(code) * 0x1p-24f);
    const uint32_t normal = (code << kShift) + (kBiasShift << 23);
    const uint32_t special = 0x7f800000u | code << kShift | (code > kInfinity ? 0x400000u : 0u);
    const uint32_t finite = code < (1u << 10) ? tiny : normal;
    const uint32_t magnitude = code < kInfinity ? finite : special;
    return std::bit_cast<float>(magnitude | (uint32_t{bits} & 0x8000u) << 16);
  }

 private:
  static constexpr int kShift = 23 - 10;
  static constexpr uint32_t kBiasShift = 127 - 15;
  static constexpr uint32_t kInfinity = 0x7c00;

  static constexpr uint16_t encode(uint32_t u) {
    const uint32_t magnitude = u & 0x7fffffffu;
    const uint32_t nearest =
        ((magnitude + 0xfffu + ((magnitude >> kShift) & 1u)) >> kShift) - (kBiasShift << 10);
    const uint32_t normal = nearest > kInfinity ? kInfinity : nearest;
    // The last mantissa bit of 0.5 is worth 2^-24, so adding 0.5 rounds to a multiple of 2^-24.
    const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t number = magnitude < (kBiasShift + 1) << 23 ? tiny : normal;
    const uint32_t nan = 0x7e00u | (magnitude >> kShift & 0x3ffu);
    const uint32_t code = magnitude > 0x7f800000u ? nan : number;
    return static_cast<uint16_t>(code | (u >> 16 & 0x8000u));
  }
};

template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};

}  // namespace ingot
