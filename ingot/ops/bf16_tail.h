// An f32 number in two halves, bit for bit: a bf16 that is the number rounded, ties away from zero, and a
// tail of 16 bits, the number's low half. Taken as signed, the tail is what the rounding took away.
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
