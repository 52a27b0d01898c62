// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): random numbers as a
// pure function of (seed, purpose, step, element index). There is no state: any thread, rank or device
// that asks for the same key gets the same number.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace ingot {

// Purpose is the use of a random number. Streams of different purposes are independent.
enum class Purpose : uint32_t { kInit = 1, kDropout = 2, kShuffle = 3, kSample = 4, kRounding = 5 };

struct RandomKey {
  uint64_t seed = 0;
  Purpose purpose = Purpose::kInit;
  uint32_t stream = 0;  // for example the parameter or layer number
  uint64_t step = 0;    // only the low 32 bits are used
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

// Uniform in [0, 1), with 24 random bits.
constexpr float uniform_from(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
constexpr float random_uniform(const RandomKey& key, uint64_t index) {
  return uniform_from(random_word(key, index));
}

// ln(x) for normal x > 0, accurate to 2 ulp. It has no branches, so that loops over it vectorise.
inline float natural_log(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x);
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;  // x = (1+f) 2^exponent, 1+f in [sqrt(1/2), sqrt(2))
  const float f = std::bit_cast<float>(bits - exponent * (1 << 23)) - 1.0f;
  float q = -0.0763450041f;
  q = q * f + 0.127615824f;
  q = q * f - 0.131601825f;
  q = q * f + 0.142017573f;
  q = q * f - 0.166233569f;
  q = q * f + 0.200012267f;
  q = q * f - 0.250008196f;
  q = q * f + 0.333333313f;
  const float mantissa_log = f + f * f * (f * q - 0.5f);
  return mantissa_log + static_cast<float>(exponent) * 0.693147181f;
}

struct Direction {
  float cos, sin;
};
// cos and sin of 2 pi t for t in [0, 1], with an absolute error of 1e-7. It has no branches.
inline Direction direction_of_turn(float t) {
  const int32_t quarter = static_cast<int32_t>(4.0f * t + 0.5f);
  const float f = t - 0.25f * static_cast<float>(quarter);  // [-1/8, 1/8]
  const float f2 = f * f;
  const float sin = f * (6.28318548f + f2 * (-41.3416634f + f2 * (81.5923538f + f2 * -75.3935547f)));
  const float cos = 1.0f + f2 * (-19.7392082f + f2 * (64.9393234f + f2 * (-85.4437408f + f2 * 59.2459641f)));
  const bool is_odd = (quarter & 1) != 0;
  const float x = is_odd ? sin : cos, y = is_odd ? cos : sin;
  return {((quarter + 1) & 2) != 0 ? -x : x, (quarter & 2) != 0 ? -y : y};
}

// Two standard normal numbers made from two random words (Box and Muller 1958).
struct NormalPair {
  float first, second;
};
inline NormalPair normal_pair(uint32_t radius_word, uint32_t angle_word) {
  const float u = (static_cast<float>(radius_word) + 1.0f) * 0x1p-32f;  // (0, 1]
  const float radius = std::sqrt(-2.0f * natural_log(u));
  const Direction d = direction_of_turn(uniform_from(angle_word));
  return {radius * d.cos, radius * d.sin};
}

// Four standard normal numbers. Elements 2i and 2i+1 use one pair of words.
inline std::array<float, 4> normal_block(const RandomKey& key, uint64_t block) {
  const Philox4 words = random_block(key, block);
  const NormalPair low = normal_pair(words[0], words[1]), high = normal_pair(words[2], words[3]);
  return {low.first, low.second, high.first, high.second};
}
inline float random_normal(const RandomKey& key, uint64_t index) {
  return normal_block(key, index / 4)[index % 4];
}

}  // namespace ingot
