// SHA-256 (FIPS 180-4), for comparison with published digests.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace ingot::test {

inline std::string sha256_hex(std::string_view message) {
  // k and h are the first 32 bits of the fractional parts of the primes' cube roots and square roots.
  std::array<uint32_t, 64> k{};
  std::array<uint32_t, 8> h{};
  const auto fraction = [](long double root) {
    return static_cast<uint32_t>((root - std::floor(root)) * 0x1p32L);
  };
  for (uint32_t prime = 2, n = 0; n < 64; ++prime) {
    bool is_prime = true;
    for (uint32_t d = 2; d * d <= prime; ++d) is_prime = is_prime && prime % d != 0;
    if (!is_prime) continue;
    k[n] = fraction(std::cbrt(static_cast<long double>(prime)));
    if (n < 8) h[n] = fraction(std::sqrt(static_cast<long double>(prime)));
    ++n;
  }
  std::string data(message);
  data.push_back('\x80');
  while (data.size() % 64 != 56) data.push_back('\0');
  for (int shift = 56; shift >= 0; shift -= 8)
    data.push_back(static_cast<char>((uint64_t{message.size()} * 8) >> shift));
  for (size_t block = 0; block < data.size(); block += 64) {
    std::array<uint32_t, 64> w{};
    for (size_t i = 0; i < 64; ++i) w[i / 4] = w[i / 4] << 8 | static_cast<uint8_t>(data[block + i]);
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    std::array<uint32_t, 8> s = h;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t sum1 = std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25);
      const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
      const uint32_t t1 = s[7] + sum1 + choice + k[i] + w[i];
      const uint32_t sum0 = std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22);
      const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
      s = {t1 + sum0 + majority, s[0], s[1], s[2], s[3] + t1, s[4], s[5], s[6]};
    }
    for (size_t i = 0; i < 8; ++i) h[i] += s[i];
  }
  std::string hex;
  for (uint32_t word : h)
    for (int shift = 28; shift >= 0; shift -= 4) hex.push_back("0123456789abcdef"[(word >> shift) & 15u]);
  return hex;
}

}  // namespace ingot::test
