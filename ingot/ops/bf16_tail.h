// Splits an f32 number, bit for bit, into two halves: a bf16, which is the number rounded with ties away
// from zero, and a 16-bit tail, which holds the low 16 bits of the number. Read as a signed integer, the
// tail is the rounding error.
#pragma once

#include <bit>
#include <cstdint>

#include "ingot/core/dtype.h"

namespace ingot {

constexpr float join_tail(bf16 high, uint16_t tail) {
  const int32_t low = static_cast<int16_t>(tail);
  return std::bit_cast<float>((static_cast<uint32_t>(high.bits) << 16) + static_cast<uint32_t>(low));
}

constexpr void split_tail(bf16& high, uint16_t& tail, float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  high.bits = static_cast<uint16_t>((u + 0x8000u) >> 16);
  tail = static_cast<uint16_t>(u);
}

}  // namespace ingot
