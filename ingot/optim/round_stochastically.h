// Stochastic rounding of one number to bf16 (Gupta et al. 2015, arXiv:1502.02551), for any device.
#pragma once

#include <bit>
#include <cstdint>

#include "ingot/core/dtype.h"

namespace ingot {

// Rounds x up or down with 16 random bits; exact values, infinities and NaN stay as they are.
constexpr bf16 round_stochastically(float x, uint16_t random) {
  const auto u = std::bit_cast<uint32_t>(x);
  const bool is_finite = (u & 0x7f800000u) != 0x7f800000u;
  bf16 rounded{};
  rounded.bits = static_cast<uint16_t>((is_finite ? u + random : u | (u << 16 != 0 ? 0x400000u : 0u)) >> 16);
  return rounded;
}

}  // namespace ingot
