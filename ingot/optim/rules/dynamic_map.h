// The dynamic maps of 8-bit states (Dettmers et al. 2022, arXiv:2110.02861; the rule of create_dynamic_map
// with 7 exponent bits): 256 values in [-1, 1] (signed) or [0, 1] (unsigned), dense near 0 by decade.
// Decade i = 0 .. 6 holds the midpoints of 2^i (signed) or 2^(i+1) (unsigned) equal cells of [0.1, 1],
// times 10^(i-6). Both maps also contain 0 and 1, and the signed map contains the negatives of all values
// but 0 and 1. So signed code 127 is 0, the least value is -0.99297 and the smallest magnitude 5.5e-7;
// unsigned code 0 is 0 and the smallest magnitude 3.25e-7.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ingot {

// Returns the values of all codes, in rising order.
std::array<float, 256> dynamic_map(bool is_signed);

inline constexpr int kSignedZero = 127;

namespace dynamic_map_detail {

// starts[i] is the magnitude from which on the nearest value lies in decade i: the midpoint of the last
// value of decade i - 1 and the first of decade i. starts[0] is the midpoint of 0 and the smallest value,
// starts[7] that of the largest value below 1 and 1.
template <int kCells>  // cells in decade 0: 1 signed, 2 unsigned
constexpr std::array<float, 8> decade_starts() {
  std::array<float, 8> starts{};
  double power = 1e-6, last = 0;
  for (int i = 0; i < 7; ++i, power *= 10) {
    const double cells = kCells << i;
    starts[static_cast<size_t>(i)] = static_cast<float>((last + power * (0.1 + 0.45 / cells)) / 2);
    last = power * (1 - 0.45 / cells);
  }
  starts[7] = static_cast<float>((last + 1) / 2);
  return starts;
}

// scales[i] = cells / (0.9 * 10^(i-6)) with cells = kCells << i. A magnitude in decade i lies in its cell
// magnitude * scales[i] - cells / 9.
template <int kCells>
constexpr std::array<float, 7> decade_scales() {
  std::array<float, 7> scales{};
  double power = 1e-6;
  for (int i = 0; i < 7; ++i, power *= 10)
    scales[static_cast<size_t>(i)] = static_cast<float>((kCells << i) / (0.9 * power));
  return scales;
}

}  // namespace dynamic_map_detail

// Returns how many values above 0 are at or below the value nearest to `magnitude` in [0, 1]: 0 .. 127 *
// kCells + 1. It uses no tables, so a loop over it vectorises. If a magnitude is within f32 rounding of
// the midpoint of two values, either may be the result.
template <int kCells>
constexpr int dynamic_level(float magnitude) {
  constexpr auto kStarts = dynamic_map_detail::decade_starts<kCells>();
  constexpr auto kScales = dynamic_map_detail::decade_scales<kCells>();
  float scale = kScales[0], cells = kCells;
  for (int i = 1; i < 7; ++i) {
    const auto decade = static_cast<size_t>(i);
    scale = magnitude >= kStarts[decade] ? kScales[decade] : scale;
    cells = magnitude >= kStarts[decade] ? static_cast<float>(kCells << i) : cells;
  }
  float cell = magnitude * scale - cells * (1.0f / 9);
  cell = cell > 0 ? cell : 0;
  cell = cell < cells - 1 ? cell : cells - 1;
  int level = 1 + static_cast<int>(cells) - kCells + static_cast<int>(cell);
  level = magnitude < kStarts[0] ? 0 : level;
  return magnitude >= kStarts[7] ? 127 * kCells + 1 : level;
}

// The code nearest to x in [-1, 1] (signed) or [0, 1] (unsigned).
constexpr uint8_t signed_code(float x) {
  const int level = dynamic_level<1>(x < 0 ? -x : x);
  const int below = kSignedZero - (level < 127 ? level : 127);
  return static_cast<uint8_t>(x < 0 ? below : kSignedZero + level);
}
constexpr uint8_t unsigned_code(float x) { return static_cast<uint8_t>(dynamic_level<2>(x)); }

// out[j] = map[codes[j]] * scale for j < n; map is a dynamic_map.
void decode_dynamic(float* out, const uint8_t* codes, const float* map, float scale, int64_t n);
// codes[j] = signed_code or unsigned_code of x[j] * unit, for j < n.
void encode_signed(uint8_t* codes, const float* x, float unit, int64_t n);
void encode_unsigned(uint8_t* codes, const float* x, float unit, int64_t n);

}  // namespace ingot
