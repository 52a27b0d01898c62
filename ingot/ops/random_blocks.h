// Computes many Philox blocks at a time. The words equal those of random_block in core/philox.h; each
// SIMD lane holds one block.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "ingot/core/philox.h"
#include "ingot/ops/simd/vec.h"

namespace ingot {

class RandomBlocks {
  // Counters and products, one 64-bit lane per block; between the rounds only the low halves are valid.
  typedef uint64_t WideVec __attribute__((vector_size(vec::kBytes)));
  static constexpr int kLanes = vec::kBytes / 8;
  static constexpr int kGroups = 2;  // registers of blocks in flight, which hide the multiplier's latency

 public:
  static constexpr int kBlocks = kGroups * kLanes;  // blocks per call of fill
  static constexpr int kWords = 4 * kBlocks;

  explicit RandomBlocks(const RandomKey& key)
      : step_(static_cast<uint32_t>(key.step)),
        stream_((static_cast<uint32_t>(key.purpose) << 24) ^ key.stream) {
    for (uint32_t round = 0; round < 10; ++round) {
      k0_[round] = WideVec{} + (static_cast<uint32_t>(key.seed) + round * 0x9E3779B9u);
      k1_[round] = WideVec{} + (static_cast<uint32_t>(key.seed >> 32) + round * 0xBB67AE85u);
    }
  }

  // Writes the words of blocks first_block, first_block + 1, ... in order.
  void fill(uint32_t (&words)[kWords], uint64_t first_block) const {
    static_assert(std::endian::native == std::endian::little, "words leave their lanes low half first");
    Counters groups[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      WideVec block;
      for (int i = 0; i < kLanes; ++i) block[i] = first_block + static_cast<uint64_t>(g * kLanes + i);
      groups[g] = {block, block >> 32, WideVec{} + step_, WideVec{} + stream_};
    }
    for (int round = 0; round < 10; ++round)
      for (Counters& group : groups) group.round(k0_[round], k1_[round]);
    for (int g = 0; g < kGroups; ++g) {
      const Counters& c = groups[g];
      const WideVec low = (c.c0 & 0xffffffffu) | (c.c1 << 32), high = (c.c2 & 0xffffffffu) | (c.c3 << 32);
      for (int i = 0; i < kLanes; ++i) {
        const uint64_t block[2] = {low[i], high[i]};
        std::memcpy(words + 4 * (g * kLanes + i), block, sizeof block);
      }
    }
  }

 private:
  // Returns (low half of a) * m in 64 bits.
  static WideVec multiply_low(WideVec a, uint32_t m) {
#if defined(INGOT_VEC_AVX512)
    return (WideVec)_mm512_mul_epu32((__m512i)a, (__m512i)(WideVec{} + m));
#elif defined(INGOT_VEC_AVX2)
    return (WideVec)_mm256_mul_epu32((__m256i)a, (__m256i)(WideVec{} + m));
#else
    return (a & 0xffffffffu) * m;
#endif
  }

  struct Counters {
    WideVec c0, c1, c2, c3;
    void round(WideVec k0, WideVec k1) {
      const WideVec p0 = multiply_low(c0, 0xD2511F53u), p1 = multiply_low(c2, 0xCD9E8D57u);
      c0 = (p1 >> 32) ^ (c1 ^ k0);
      c1 = p1;
      c2 = (p0 >> 32) ^ (c3 ^ k1);
      c3 = p0;
    }
  };

  WideVec k0_[10], k1_[10];  // the key of each round in every lane
  uint32_t step_, stream_;
};

}  // namespace ingot
