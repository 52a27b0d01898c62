#include "ingot/optim/rules/dynamic_map.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define INGOT_DYNAMIC_MAP_AVX512 1
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <limits>

namespace ingot {
namespace {

#ifdef INGOT_DYNAMIC_MAP_AVX512
constexpr int64_t kLanes = 16;

// dynamic_level by table look-up. The exponent of a magnitude gives its octave; the octave's table entry
// gives the decade at its beginning, and one comparison tells whether the next decade has begun. Decades
// are wider than three octaves, so at most one begins in an octave.
template <int kCells>
struct LevelTables {
  static constexpr int kOctaves = 32, kFirstExponent = 127 - 22;  // octave 0 begins at 2^-22, below decade 1
  alignas(64) float start[kOctaves];     // where the next decade begins, if in the octave; else infinity
  alignas(64) int32_t decade[kOctaves];  // the decade in which the octave begins
  alignas(64) float scale[kLanes] = {}, cells[kLanes] = {};  // per decade
  alignas(64) int32_t first_level[kLanes] = {};

  constexpr LevelTables() : start{}, decade{} {
    constexpr auto kStarts = dynamic_map_detail::decade_starts<kCells>();
    constexpr auto kScales = dynamic_map_detail::decade_scales<kCells>();
    for (int k = 0; k < kOctaves; ++k) {
      const auto begin = std::bit_cast<float>(static_cast<uint32_t>(k + kFirstExponent) << 23);
      start[k] = std::numeric_limits<float>::infinity();
      for (int i = 1; i < 7; ++i) {
        const float next = kStarts[static_cast<size_t>(i)];
        if (next <= begin) decade[k] = i;
        if (next > begin && next < 2 * begin) start[k] = next;
      }
    }
    for (int i = 0; i < 7; ++i) {
      scale[i] = kScales[static_cast<size_t>(i)];
      cells[i] = static_cast<float>(kCells << i);
      first_level[i] = 1 + (kCells << i) - kCells;
    }
  }
};

// dynamic_level of 16 magnitudes in [0, 1].
template <int kCells>
inline __m512i levels(__m512 magnitude) {
  using Tables = LevelTables<kCells>;
  static constexpr Tables kTables;
  constexpr auto kStarts = dynamic_map_detail::decade_starts<kCells>();
  const __m512i exponent = _mm512_srli_epi32(_mm512_castps_si512(magnitude), 23);
  const __m512i octave = _mm512_max_epi32(
      _mm512_sub_epi32(exponent, _mm512_set1_epi32(Tables::kFirstExponent)), _mm512_setzero_si512());
  const __m512 start =
      _mm512_permutex2var_ps(_mm512_load_ps(kTables.start), octave, _mm512_load_ps(kTables.start + kLanes));
  __m512i decade = _mm512_permutex2var_epi32(_mm512_load_si512(kTables.decade), octave,
                                             _mm512_load_si512(kTables.decade + kLanes));
  const __mmask16 is_next = _mm512_cmp_ps_mask(magnitude, start, _CMP_GE_OQ);
  decade = _mm512_mask_add_epi32(decade, is_next, decade, _mm512_set1_epi32(1));
  const __m512 cells = _mm512_permutexvar_ps(decade, _mm512_load_ps(kTables.cells));
  const __m512 scale = _mm512_permutexvar_ps(decade, _mm512_load_ps(kTables.scale));
  __m512 cell = _mm512_fmsub_ps(magnitude, scale, _mm512_mul_ps(cells, _mm512_set1_ps(1.0f / 9)));
  cell = _mm512_max_ps(cell, _mm512_setzero_ps());
  cell = _mm512_min_ps(cell, _mm512_sub_ps(cells, _mm512_set1_ps(1)));
  __m512i level = _mm512_add_epi32(_mm512_permutexvar_epi32(decade, _mm512_load_si512(kTables.first_level)),
                                   _mm512_cvttps_epi32(cell));
  const __mmask16 is_above_zero = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(kStarts[0]), _CMP_GE_OQ);
  const __mmask16 is_one = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(kStarts[7]), _CMP_GE_OQ);
  level = _mm512_maskz_mov_epi32(is_above_zero, level);
  return _mm512_mask_mov_epi32(level, is_one, _mm512_set1_epi32(127 * kCells + 1));
}

inline void store_codes(uint8_t* codes, __m512i values) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(values));
}
#endif

}  // namespace

void decode_dynamic(float* out, const uint8_t* codes, const float* map, float scale, int64_t n) {
  int64_t j = 0;
#ifdef INGOT_DYNAMIC_MAP_AVX512
  for (; j + kLanes <= n; j += kLanes) {
    const __m512i index = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + j)));
    _mm512_storeu_ps(out + j, _mm512_mul_ps(_mm512_i32gather_ps(index, map, 4), _mm512_set1_ps(scale)));
  }
#endif
#pragma omp simd
  for (int64_t i = j; i < n; ++i) out[i] = map[codes[i]] * scale;
}

void encode_signed(uint8_t* codes, const float* x, float unit, int64_t n) {
  int64_t j = 0;
#ifdef INGOT_DYNAMIC_MAP_AVX512
  const __m512i zero = _mm512_set1_epi32(kSignedZero);
  for (; j + kLanes <= n; j += kLanes) {
    const __m512 value = _mm512_mul_ps(_mm512_loadu_ps(x + j), _mm512_set1_ps(unit));
    const __m512i level = levels<1>(_mm512_abs_ps(value));
    const __mmask16 is_negative = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_LT_OQ);
    const __m512i above = _mm512_add_epi32(zero, level);
    store_codes(codes + j, _mm512_mask_sub_epi32(above, is_negative, zero, _mm512_min_epi32(level, zero)));
  }
#endif
#pragma omp simd
  for (int64_t i = j; i < n; ++i) codes[i] = signed_code(x[i] * unit);
}

void encode_unsigned(uint8_t* codes, const float* x, float unit, int64_t n) {
  int64_t j = 0;
#ifdef INGOT_DYNAMIC_MAP_AVX512
  for (; j + kLanes <= n; j += kLanes)
    store_codes(codes + j, levels<2>(_mm512_mul_ps(_mm512_loadu_ps(x + j), _mm512_set1_ps(unit))));
#endif
#pragma omp simd
  for (int64_t i = j; i < n; ++i) codes[i] = unsigned_code(x[i] * unit);
}

std::array<float, 256> dynamic_map(bool is_signed) {
  std::array<float, 256> map{};
  const int zero = is_signed ? kSignedZero : 0;
  map[static_cast<size_t>(zero)] = 0;
  map[255] = 1;
  int level = 0;
  double power = 1e-6;
  for (int i = 0; i < 7; ++i, power *= 10) {
    const int cells = (is_signed ? 1 : 2) << i;
    for (int c = 0; c < cells; ++c) {
      const auto value = static_cast<float>(power * (0.1 + 0.9 * (c + 0.5) / cells));
      ++level;
      map[static_cast<size_t>(zero) + static_cast<size_t>(level)] = value;
      if (is_signed) map[static_cast<size_t>(zero) - static_cast<size_t>(level)] = -value;
    }
  }
  return map;
}

}  // namespace ingot
