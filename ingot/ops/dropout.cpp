#include "ingot/ops/dropout.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ingot/core/parallel.h"
#include "ingot/ops/dispatch.h"
#include "ingot/ops/vec.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

static_assert(std::endian::native == std::endian::little, "words are taken from 64-bit lanes low half first");

namespace ingot {
namespace {

using vec::Vec;

// Philox counters and products side by side, one 64-bit lane per block; between the rounds only the low
// halves count.
typedef uint64_t WideVec __attribute__((vector_size(vec::kBytes)));

constexpr int kLanes = vec::kBytes / 8;
constexpr int kGroups = 2;                 // registers of blocks in flight, to hide the multiplier's latency
constexpr int kBlocks = kGroups * kLanes;  // Philox blocks made at once
constexpr int64_t kWords = 4 * kBlocks;    // elements whose fate they decide
constexpr int64_t kGrainElements = 8192;   // a thread takes at least

// (low half of a) * m, in 64 bits.
WideVec multiply_low(WideVec a, uint32_t m) {
#if defined(__AVX512F__)
  return (WideVec)_mm512_mul_epu32((__m512i)a, (__m512i)(WideVec{} + m));
#elif defined(__AVX2__)
  return (WideVec)_mm256_mul_epu32((__m256i)a, (__m256i)(WideVec{} + m));
#else
  return (a & 0xffffffffu) * m;
#endif
}

// The key of each round in every lane.
struct RoundKeys {
  WideVec k0[10], k1[10];
  explicit RoundKeys(uint64_t seed) {
    for (uint32_t round = 0; round < 10; ++round) {
      k0[round] = WideVec{} + (static_cast<uint32_t>(seed) + round * 0x9E3779B9u);
      k1[round] = WideVec{} + (static_cast<uint32_t>(seed >> 32) + round * 0xBB67AE85u);
    }
  }
};

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

// random_block(key, first_block + i) for i < kBlocks: their words in order.
void random_blocks(uint32_t (&words)[kWords], const RandomKey& key, const RoundKeys& round_keys,
                   uint64_t first_block) {
  Counters groups[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    WideVec block;
    for (int i = 0; i < kLanes; ++i) block[i] = first_block + static_cast<uint64_t>(g * kLanes + i);
    groups[g] = {block, block >> 32, WideVec{} + static_cast<uint32_t>(key.step),
                 WideVec{} + ((static_cast<uint32_t>(key.purpose) << 24) ^ key.stream)};
  }
  for (int round = 0; round < 10; ++round)
    for (Counters& group : groups) group.round(round_keys.k0[round], round_keys.k1[round]);
  for (int g = 0; g < kGroups; ++g) {
    const Counters& c = groups[g];
    const WideVec low = (c.c0 & 0xffffffffu) | (c.c1 << 32), high = (c.c2 & 0xffffffffu) | (c.c3 << 32);
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t block[2] = {low[i], high[i]};
      std::memcpy(words + 4 * (g * kLanes + i), block, sizeof block);
    }
  }
}

// Elements [begin, end) of the tensor, whose first has the index first_index.
template <typename T>
void drop(T* y, const T* x, int64_t begin, int64_t end, uint32_t threshold, float scale, const RandomKey& key,
          uint64_t first_index) {
  const RoundKeys round_keys(key.seed);
  uint32_t words[kWords];
  while (begin < end) {
    const uint64_t index = first_index + static_cast<uint64_t>(begin);
    const int64_t skip = static_cast<int64_t>(index % 4);
    const int64_t count = std::min(kWords - skip, end - begin);
    random_blocks(words, key, round_keys, index / 4);
    float factor[kWords];
    for (int64_t i = 0; i < kWords; ++i) factor[i] = words[i] < threshold ? 0.0f : scale;
    const float* own_factor = factor + skip;
    const T* x_part = x + begin;
    T* y_part = y + begin;
    vec::for_each(count, [&](auto load, auto store) { store(y_part, load(x_part) * load(own_factor)); });
    begin += count;
  }
}

}  // namespace

void dropout(const Tensor& y, const Tensor& x, float p, const RandomKey& key, uint64_t first_index,
             Stream& stream) {
  const Span span(stream.trace, "activation");
  INGOT_CHECK(p >= 0 && p < 1, "dropout: p must be in [0, 1), got {}", p);
  INGOT_CHECK(x.is_contiguous(), "dropout: x must be contiguous, got {}", x.shape.to_string());
  INGOT_CHECK(key.purpose == Purpose::kDropout, "dropout: the key's purpose must be kDropout");
  check_tensor(y, x.dtype, x.shape, "dropout: y");
  if (p == 0 && y.data == x.data) return;
  const double chance = p;
  const uint32_t threshold = static_cast<uint32_t>(std::min(std::round(chance * 0x1p32), 4294967295.0));
  const float scale = static_cast<float>(1 / (1 - chance));
  INGOT_DISPATCH(x.dtype, T, {
    parallel_for(x.elements(), kGrainElements, [&](int64_t begin, int64_t end) {
      drop(y.as<T>(), x.as<T>(), begin, end, threshold, scale, key, first_index);
    });
  });
}

}  // namespace ingot
