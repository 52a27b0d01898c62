// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): random numbers as a
// pure function of (seed, purpose, step, element index). No state: any thread, rank or device that asks for
// the same key gets the same number.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace ingot {

// What a random number is for; streams of different purposes are independent.
enum class Purpose : uint32_t { kInit = 1, kDropout = 2, kShuffle = 3, kSample = 4, kRounding = 5 };

struct RandomKey {
  uint64_t seed = 0;
  Purpose purpose = Purpose::kInit;
  uint32_t stream = 0;  // e.g. parameter or layer number
  uint64_t step = 0;    // folded to 32 bits
};

using Philox4 = std::array<uint32_t, 4>;

constexpr Philox4 philox4x32(Philox4 counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Four random words of block `block` (elements 4*block .. 4*block+3) under the key.
constexpr Philox4 random_block(const RandomKey& key, uint64_t block) {
  const Philox4 counter = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                           static_cast<uint32_t>(key.step),
                           (static_cast<uint32_t>(key.purpose) << 24) ^ key.stream};
  return philox4x32(counter, {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

constexpr uint32_t random_word(const RandomKey& key, uint64_t index) {
  return random_block(key, index / 4)[index % 4];
}

// Uniform in [0, 1) with 24 bits.
constexpr float uniform_from(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
constexpr float random_uniform(const RandomKey& key, uint64_t index) {
  return uniform_from(random_word(key, index));
}

// Four standard normal numbers by Box-Muller, in float: elements 2i and 2i+1 share one pair of words.
inline std::array<float, 4> normal_block(const RandomKey& key, uint64_t block) {
  const Philox4 words = random_block(key, block);
  std::array<float, 4> normals;
  for (size_t pair = 0; pair < 4; pair += 2) {
    const float u = (static_cast<float>(words[pair]) + 1.0f) * 0x1p-32f;  // (0, 1]
    const float angle = 6.28318530717958648f * uniform_from(words[pair + 1]);
    const float radius = std::sqrt(-2.0f * std::log(u));
    normals[pair] = radius * std::cos(angle);
    normals[pair + 1] = radius * std::sin(angle);
  }
  return normals;
}
inline float random_normal(const RandomKey& key, uint64_t index) {
  return normal_block(key, index / 4)[index % 4];
}

}  // namespace ingot
