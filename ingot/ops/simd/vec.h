// Vec is one register of floats, with the few functions that CPU kernels need. It is written with the
// compilers' vector extensions, so its width follows the target (AVX-512: 16 lanes, AVX2: 8, otherwise
// 4). Intrinsics replace extensions that would compile to many instructions.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "ingot/core/dtype.h"
#include "ingot/core/float16.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include <immintrin.h>
#define INGOT_VEC_AVX512 1
#elif defined(__AVX2__)
#include <immintrin.h>
#define INGOT_VEC_AVX2 1
#endif

namespace ingot::vec {

#if defined(INGOT_VEC_AVX512)
inline constexpr int kBytes = 64;
#elif defined(INGOT_VEC_AVX2)
inline constexpr int kBytes = 32;
#else
inline constexpr int kBytes = 16;
#endif
inline constexpr int kLanes = kBytes / 4;

typedef float Vec __attribute__((vector_size(kBytes)));
typedef int32_t IntVec __attribute__((vector_size(kBytes)));
typedef uint32_t UintVec __attribute__((vector_size(kBytes)));
typedef int8_t ByteVec __attribute__((vector_size(kBytes / 4)));
typedef uint16_t HalfVec __attribute__((vector_size(kBytes / 2)));

inline Vec splat(float x) { return x - Vec{}; }  // subtraction keeps -0

// Returns a * b + c with one rounding where the target has such an instruction. The compiler chooses by loop
// whether it forms it from * and +, so sums that must have the same bits in two loops use this.
inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(INGOT_VEC_AVX512)
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(INGOT_VEC_AVX2) && defined(__FMA__)
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

// Converts bf16 to f32: the same bits followed by 16 zeros.
inline Vec widen(HalfVec h) {
#if defined(INGOT_VEC_AVX512)
  return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#elif defined(INGOT_VEC_AVX2)
  return (Vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16);
#else
  return (Vec)(__builtin_convertvector(h, UintVec) << 16);
#endif
}

inline Vec widen_f16(HalfVec h) {
#if defined(INGOT_VEC_AVX512)
  return (Vec)_mm512_cvtph_ps((__m256i)h);
#elif defined(INGOT_VEC_AVX2) && defined(__F16C__)
  return (Vec)_mm256_cvtph_ps((__m128i)h);
#else
  Vec v;
  for (int i = 0; i < kLanes; ++i) v[i] = static_cast<float>(std::bit_cast<f16>(h[i]));
  return v;
#endif
}

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline Vec load(const bf16* p) {
  HalfVec h;
  std::memcpy(&h, p, sizeof h);
  return widen(h);
}
inline Vec load(const f16* p) {
  HalfVec h;
  std::memcpy(&h, p, sizeof h);
  return widen_f16(h);
}
inline Vec load(const int8_t* p) {
#if defined(INGOT_VEC_AVX512)
  return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(INGOT_VEC_AVX2)
  return (Vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  ByteVec b;
  std::memcpy(&b, p, sizeof b);
  return __builtin_convertvector(b, Vec);
#endif
}
inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
// Rounds to nearest even as bf16's constructor does; NaN stays NaN. The AVX512-BF16 instruction, where
// available, flushes subnormals (below 1.2e-38) to 0; ops/cast.h rounds them correctly.
inline void store(bf16* p, Vec v) {
#if defined(INGOT_VEC_AVX512) && defined(__AVX512BF16__)
  const __m256bh h = _mm512_cvtneps_pbh((__m512)v);
#else
  const UintVec u = (UintVec)v;
  const UintVec rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const UintVec quiet = (u >> 16) | 0x40u;
  const IntVec is_number = v == v;  // NOLINT(misc-redundant-expression): false for NaN
  const HalfVec h = __builtin_convertvector(is_number ? rounded : quiet, HalfVec);
#endif
  std::memcpy(p, &h, sizeof h);
}
// Gives the same bits as f16's constructor.
inline void store(f16* p, Vec v) {
#if defined(INGOT_VEC_AVX512)
  const __m256i h = _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(INGOT_VEC_AVX2) && defined(__F16C__)
  const __m128i h = _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  HalfVec h;
  for (int i = 0; i < kLanes; ++i) h[i] = f16(v[i]).bits;
#endif
  std::memcpy(p, &h, sizeof h);
}

// Load and store the first n < kLanes elements. The other lanes load as 0, and their memory is not accessed.
#if defined(INGOT_VEC_AVX512)
inline uint16_t first_lanes(int64_t n) { return static_cast<uint16_t>((1u << n) - 1); }
inline Vec load_first(const float* p, int64_t n) { return (Vec)_mm512_maskz_loadu_ps(first_lanes(n), p); }
inline Vec load_first(const bf16* p, int64_t n) {
  return widen((HalfVec)_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
inline Vec load_first(const int8_t* p, int64_t n) {
  return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), p)));
}
inline Vec load_first(const f16* p, int64_t n) {
  return widen_f16((HalfVec)_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
inline void store_first(float* p, Vec v, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), (__m512)v); }
#else
template <typename T>
Vec load_first(const T* p, int64_t n) {
  T lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(T));
  return load(lanes);
}
inline void store_first(float* p, Vec v, int64_t n) {
  float lanes[kLanes];
  store(lanes, v);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}
#endif
template <typename T>  // bf16 or f16
void store_first(T* p, Vec v, int64_t n) {
  T lanes[kLanes];
  store(lanes, v);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(T));
}

// Return the larger and the smaller of each pair, or b where either is NaN.
inline Vec max(Vec a, Vec b) {
#if defined(INGOT_VEC_AVX512)
  return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(INGOT_VEC_AVX2)
  return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}
inline Vec min(Vec a, Vec b) {
#if defined(INGOT_VEC_AVX512)
  return (Vec)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(INGOT_VEC_AVX2)
  return (Vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return a < b ? a : b;
#endif
}

// Reduces all lanes to one by combining halves.
template <typename Combine>
float reduce(Vec v, Combine&& combine) {
  float lanes[kLanes];
  store(lanes, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] = combine(lanes[i], lanes[i + width]);
  return lanes[0];
}
#if defined(INGOT_VEC_AVX512)
inline float sum(Vec v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float max(Vec v) { return _mm512_reduce_max_ps((__m512)v); }
#else
inline float sum(Vec v) {
  return reduce(v, [](float a, float b) { return a + b; });
}
inline float max(Vec v) {
  return reduce(v, [](float a, float b) { return a > b ? a : b; });
}
#endif

// Returns exp(x) to 2 ulp for x in [-87.3, 88.7], 0 below and +inf above; NaN stays NaN. Uses 1 + r +
// r^2 q(r) with a minimax q of relative error 3e-9 on |r| <= ln(2) / 2.
inline Vec exp(Vec x) {
  const Vec kMagic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec clamped = min(splat(88.8f), x);
  const Vec n = (clamped * 1.44269504088896341f + kMagic) - kMagic;
  const Vec r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  Vec p = splat(1.38145406e-3f);
  p = p * r + 8.36874545e-3f;
  p = p * r + 4.1668389e-2f;
  p = p * r + 0.166665211f;
  p = p * r + 0.49999994f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
#if defined(INGOT_VEC_AVX512)
  const __mmask16 is_above = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.33654f), _CMP_NLT_UQ);
  return (Vec)_mm512_maskz_scalef_ps(is_above, (__m512)p, (__m512)n);
#else
  // Multiplies by 2^n in two halves, so that n = 128 overflows to infinity only in the last product.
  const IntVec exponent = __builtin_convertvector(n, IntVec);
  const IntVec half = exponent >> 1;
  const IntVec low = (half + 127) << 23, high = (exponent - half + 127) << 23;
  const Vec scaled = p * (Vec)low * (Vec)high;
  const Vec in_range = x < -87.33654f ? Vec{} : scaled;
  const IntVec is_number = x == x;  // NOLINT(misc-redundant-expression): false for NaN
  return is_number ? in_range : x;
#endif
}

// Returns 1 / x to 2 ulp for x >= 1, including infinity.
inline Vec reciprocal(Vec x) {
#if defined(INGOT_VEC_AVX512)
  const __m512 d = (__m512)x, r = _mm512_rcp14_ps(d);
  const __mmask16 is_refined = _mm512_cmp_ps_mask(d, _mm512_set1_ps(0x1p126f), _CMP_LT_OQ);
  return (Vec)_mm512_mask_fmadd_ps(r, is_refined, _mm512_fnmadd_ps(d, r, _mm512_set1_ps(1.0f)), r);
#else
  return 1.0f / x;
#endif
}

inline Vec sigmoid(Vec x) { return reciprocal(1.0f + exp(-x)); }

// Returns tanh(x) with an absolute error of at most 1e-7.
inline Vec tanh(Vec x) { return 1.0f - 2.0f * reciprocal(exp(2.0f * x) + 1.0f); }

// Calls body(load, store) for each register of [0, n): whole registers first, then a partial one.
// `load(p)` reads p[i..] and `store(p, v)` writes it, where i is the register's first element. The
// partial register's missing lanes load as 0. The function is always inlined, so that the body's
// captures stay in registers whatever it stores to.
template <typename Body>
[[gnu::always_inline]] inline void for_each(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    body([i](const auto* p) { return load(p + i); }, [i](auto* p, Vec v) { store(p + i, v); });
  if (i < n)
    body([i, n](const auto* p) { return load_first(p + i, n - i); },
         [i, n](auto* p, Vec v) { store_first(p + i, v, n - i); });
}

}  // namespace ingot::vec
