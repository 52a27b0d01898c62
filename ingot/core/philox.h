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

// Standard normal by Box-Muller: elements 2i and 2i+1 share one pair of words.
inline float random_normal(const RandomKey& key, uint64_t index) {
  const Philox4 words = random_block(key, index / 4);
  const size_t pair = (index % 4) / 2 * 2;
  const double u = (static_cast<double>(words[pair]) + 1.0) * 0x1p-32;  // (0, 1]
  const double angle = 2 * 3.14159265358979323846 * static_cast<double>(words[pair + 1]) * 0x1p-32;
  const double radius = std::sqrt(-2 * std::log(u));
  return static_cast<float>(radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

}  // namespace ingot
