#include "ingot/ops/bf16_tail.h"

#include <gtest/gtest.h>

#include <bit>

namespace ingot {
namespace {

// Tries every upper half with the lower halves around which rounding changes. Infinities and
// NaNs also come back bit for bit.
TEST(Bf16Tail, JoinsToTheSameBits) {
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (uint32_t low : {0u, 1u, 0x1234u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const uint32_t u = high << 16 | low;
      bf16 w;
      uint16_t tail;
      split_tail(w, tail, std::bit_cast<float>(u));
      ASSERT_EQ(std::bit_cast<uint32_t>(join_tail(w, tail)), u);
    }
}

// The bf16 half is what a cast gives, except that ties go away from zero.
TEST(Bf16Tail, TheUpperHalfIsTheRoundedNumber) {
  for (uint32_t high = 0; high < 0x7f80; ++high)
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8001u, 0xffffu})
      for (uint32_t sign : {0u, 0x80000000u}) {
        const float x = std::bit_cast<float>(sign | high << 16 | low);
        bf16 w;
        uint16_t tail;
        split_tail(w, tail, x);
        ASSERT_EQ(w.bits, bf16(x).bits);
      }
}

}  // namespace
}  // namespace ingot
