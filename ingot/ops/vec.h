// Vec: one register of floats, and the few functions that every CPU kernel needs of it. Written with the
// compilers' vector extensions, so the width follows the target (AVX-512: 16, AVX2: 8, else: 4 lanes).
#pragma once

#include <cstdint>
#include <cstring>

#include "ingot/core/dtype.h"

namespace ingot::vec {

#if defined(__AVX512F__)
inline constexpr int kBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kBytes = 32;
#else
inline constexpr int kBytes = 16;
#endif
inline constexpr int kLanes = kBytes / 4;

typedef float Vec __attribute__((vector_size(kBytes)));
typedef int32_t IntVec __attribute__((vector_size(kBytes)));
typedef uint32_t UintVec __attribute__((vector_size(kBytes)));
typedef uint16_t HalfVec __attribute__((vector_size(kBytes / 2)));

inline Vec splat(float x) { return x - Vec{}; }  // subtracting keeps -0

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline Vec load(const bf16* p) {
  HalfVec h;
  std::memcpy(&h, p, sizeof h);
  const UintVec u = __builtin_convertvector(h, UintVec) << 16;
  return (Vec)u;  // same bits
}
inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
// Rounds to nearest even; NaN stays NaN (as bf16's constructor).
inline void store(bf16* p, Vec v) {
  const UintVec u = (UintVec)v;
  const UintVec rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const UintVec quiet = (u >> 16) | 0x40u;
  const IntVec is_number = v == v;  // NOLINT(misc-redundant-expression): false for NaN
  const HalfVec h = __builtin_convertvector(is_number ? rounded : quiet, HalfVec);
  std::memcpy(p, &h, sizeof h);
}

// The first n < kLanes elements; the other lanes are 0 and not touched in memory.
template <typename T>
Vec load_first(const T* p, int64_t n) {
  T lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(T));
  return load(lanes);
}
template <typename T>
void store_first(T* p, Vec v, int64_t n) {
  T lanes[kLanes];
  store(lanes, v);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(T));
}

inline float sum(Vec v) {
  float lanes[kLanes];
  store(lanes, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}
inline float max(Vec v) {
  float lanes[kLanes];
  store(lanes, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
  return lanes[0];
}
inline Vec max(Vec a, Vec b) { return a > b ? a : b; }
inline Vec min(Vec a, Vec b) { return a < b ? a : b; }

// exp(x) to 2 ulp for x in [-87.3, 88.3]; 0 below, +inf above 88.72, NaN stays NaN.
inline Vec exp(Vec x) {
  const Vec kMagic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec clamped = min(max(x, splat(-87.4f)), splat(88.8f));
  const Vec shifted = clamped * 1.44269504088896341f + kMagic;
  const Vec n = shifted - kMagic;
  const Vec r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  Vec p = splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^n in two halves, so that n = 128 overflows to infinity only in the last product.
  const IntVec exponent = __builtin_convertvector(n, IntVec);
  const IntVec half = exponent >> 1;
  const IntVec low = (half + 127) << 23, high = (exponent - half + 127) << 23;
  const Vec scaled = p * (Vec)low * (Vec)high;
  const Vec in_range = x < -87.33654f ? Vec{} : scaled;
  const IntVec is_number = x == x;  // NOLINT(misc-redundant-expression): false for NaN
  return is_number ? in_range : x;
}

inline Vec sigmoid(Vec x) { return 1.0f / (1.0f + exp(-x)); }

// tanh(x) to 1e-7 absolute.
inline Vec tanh(Vec x) { return 1.0f - 2.0f / (exp(2.0f * x) + 1.0f); }

// Calls body(load, store, i) over [0, n): whole registers first, then one partial one. `load(p)` reads
// p[i..], `store(p, v)` writes it; the partial register's missing lanes read 0.
template <typename Body>
void for_each(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    body([i](const auto* p) { return load(p + i); }, [i](auto* p, Vec v) { store(p + i, v); });
  if (i < n)
    body([i, n](const auto* p) { return load_first(p + i, n - i); },
         [i, n](auto* p, Vec v) { store_first(p + i, v, n - i); });
}

}  // namespace ingot::vec
