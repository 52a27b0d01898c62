// Shared by attention's forward and backward: register-blocked products of small f32 matrices, copies of
// head rows into f32 tiles, and the geometry of a tile of queries against a tile of keys.
//
// Scores are stored key-major, s^T (keys, queries). A register then holds kLanes queries of one key, so
// softmax statistics need no horizontal sums, and rows of K and V are used without packing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "ingot/ops/simd/vec.h"
#include "ingot/ops/simd/vec_transpose.h"

namespace ingot::tile {

using vec::kLanes;
using vec::Vec;

// A product tile has kRows x kPanelVecs accumulators in registers: 6 x 2 of AVX2's 16, 12 x 2 of
// AVX-512's 32.
inline constexpr int kRows = kLanes == 16 ? 12 : 6;
inline constexpr int kPanelVecs = 2;
inline constexpr int kPanel = kPanelVecs * kLanes;
static_assert(16 % kLanes == 0);

inline Vec fused_multiply_add(float x, Vec b, Vec c) { return vec::fma(vec::splat(x), b, c); }

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Returns the row stride for n floats: an odd number of whole cache lines, so that a column of rows does
// not fall into few cache sets.
constexpr int64_t leading_dim(int64_t n) {
  const int64_t lines = round_up(n, 16) / 16;
  return (lines + 1 - lines % 2) * 16;
}

struct Matrix {
  float* data;
  int64_t ld;  // row stride in elements

  float* row(int64_t i) const { return data + i * ld; }
  Matrix from_row(int64_t i) const { return {row(i), ld}; }
};

enum class Start { kZero, kAdd, kScaled };  // c = ab, c += ab, c = scale[i] c + ab

// c (R, W registers) = or += a (R, k) times b (k, W registers). a's element (i,p) is at p * ld + i with
// kIsColumnMajor, otherwise at i * ld + p. Each step of k does R x W fused multiply-adds for R + W loads.
template <int R, int W, bool kIsColumnMajor>
[[gnu::noinline]] void micro_product(Start start, Matrix c, Matrix a, Matrix b, int64_t k,
                                     const float* scale) {
  const int64_t lda = a.ld;
  Vec acc[R][W];
  _Pragma("GCC unroll 16") for (int i = 0; i < R; ++i) _Pragma("GCC unroll 16") for (int w = 0; w < W; ++w) {
    const Vec old = start == Start::kZero ? Vec{} : vec::load(c.row(i) + w * kLanes);
    acc[i][w] = start == Start::kScaled ? old * scale[i] : old;
  }
  constexpr int kGroup = kIsColumnMajor ? R : 3;  // rows addressed from one pointer: +0, +lda, +2 lda
  constexpr int kPointers = (R + kGroup - 1) / kGroup;
  const float* first[kPointers];
  _Pragma("GCC unroll 16") for (int g = 0; g < kPointers; ++g) first[g] = a.data + g * kGroup * lda;
  const float* b_row = b.data;
  for (int64_t p = 0; p < k; ++p) {
    Vec row[W];
    _Pragma("GCC unroll 16") for (int w = 0; w < W; ++w) row[w] = vec::load(b_row + w * kLanes);
    _Pragma("GCC unroll 16") for (int i = 0; i < R; ++i) {
      const float x = first[i / kGroup][i % kGroup * (kIsColumnMajor ? 1 : lda)];
      _Pragma("GCC unroll 16") for (int w = 0; w < W; ++w) acc[i][w] =
          fused_multiply_add(x, row[w], acc[i][w]);
    }
    _Pragma("GCC unroll 16") for (int g = 0; g < kPointers; ++g) first[g] += kIsColumnMajor ? lda : 1;
    b_row += b.ld;
  }
  _Pragma("GCC unroll 16") for (int i = 0; i < R; ++i) _Pragma("GCC unroll 16") for (int w = 0; w < W; ++w)
      vec::store(c.row(i) + w * kLanes, acc[i][w]);
}

template <int R, int W, bool kIsColumnMajor>
void micro_product_rows(int64_t rows, Start start, Matrix c, Matrix a, Matrix b, int64_t k,
                        const float* scale) {
  if (rows == R) return micro_product<R, W, kIsColumnMajor>(start, c, a, b, k, scale);
  if constexpr (R > 1) micro_product_rows<R - 1, W, kIsColumnMajor>(rows, start, c, a, b, k, scale);
}

struct Span {
  int64_t begin, end;
};
struct Extent {
  int64_t rows, columns;
};

// c (rows, columns) = or += a times b, where rows [r, r_end) sum over the range inner(r, r_end) only.
// columns is rounded up to whole registers. scale (rows) is used by Start::kScaled.
template <bool kIsColumnMajor, typename Inner>
inline void product(Start start, Matrix c, Matrix a, Matrix b, Extent size, Inner&& inner,
                    const float* scale = nullptr) {
  const int64_t rows = size.rows, columns = size.columns;
  const auto panel = [&]<int W>(int64_t column) {
    for (int64_t r = 0; r < rows; r += kRows) {
      const int64_t count = std::min<int64_t>(kRows, rows - r);
      const auto [begin, end] = inner(r, r + count);
      if (begin >= end && start != Start::kZero) continue;
      float* a_first = kIsColumnMajor ? a.row(begin) + r : a.row(r) + begin;
      micro_product_rows<kRows, W, kIsColumnMajor>(
          count, start, {c.row(r) + column, c.ld}, {a_first, a.ld}, {b.row(begin) + column, b.ld},
          std::max<int64_t>(end - begin, 0), scale + (scale ? r : 0));
    }
  };
  int64_t column = 0;
  for (; column + kPanel <= columns; column += kPanel) panel.template operator()<kPanelVecs>(column);
  for (; column < columns; column += kLanes) panel.template operator()<1>(column);
}

// Queries [0, m) against keys [0, n) of a tile. Key j is visible to query i if j + diagonal <= i, and with a
// window > 0 if also i < j + diagonal + window. The functions below do not know the window.
struct Block {
  int64_t m, n, diagonal, window = 0;

  // Query i sees keys [0, visible_keys(i)).
  int64_t visible_keys(int64_t i) const { return std::clamp<int64_t>(i - diagonal + 1, 0, n); }
  // Queries [first_query(j), m) see key j.
  int64_t first_query(int64_t j) const { return std::max<int64_t>(j + diagonal, 0); }
  int64_t last_query_of_panel(int64_t first) const { return std::min<int64_t>(first + kPanel, m) - 1; }
};

// s^T (keys, queries) = a (keys, D) times columns (D, queries), at least where the query sees the key.
inline void score_product(Matrix s, Matrix a, Matrix columns, const Block& block, int64_t D) {
  for (int64_t q = 0; q < block.m; q += kPanel)
    product<false>(Start::kZero, {s.data + q, s.ld}, a, {columns.data + q, columns.ld},
                   {block.visible_keys(block.last_query_of_panel(q)), kPanel}, [D](int64_t, int64_t) {
                     return Span{0, D};
                   });
}

// Prefetches a row. Rows of a packed buffer are about a page apart, where the hardware does not prefetch.
template <bool kIsWrite, typename T>
inline void prefetch_row(T* row, int64_t D) {
  for (int64_t d = 0; d < D; d += static_cast<int64_t>(64 / sizeof(T))) __builtin_prefetch(row + d, kIsWrite);
}
inline constexpr int64_t kPrefetchRows = 16;

// dst (n, D) f32 = rows of src that are `stride` elements apart. Columns from D up to a whole register
// become 0.
template <typename T>
void load_rows(Matrix dst, const T* src, int64_t stride, int64_t n, int64_t D) {
  for (int64_t i = 0; i < n; ++i) {
    if (i + kPrefetchRows < n) prefetch_row<false>(src + (i + kPrefetchRows) * stride, D);
    const T* from = src + i * stride;
    float* to = dst.row(i);
    int64_t d = 0;
    for (; d + kLanes <= D; d += kLanes) vec::store(to + d, vec::load(from + d));
    if (d < D) vec::store(to + d, vec::load_first(from + d, D - d));
  }
}

// dst[i] = factor * src[i], times row_factors[i] if given, rounded to T.
template <typename T>
void store_rows(T* dst, int64_t stride, Matrix src, int64_t n, int64_t D, float factor,
                const float* row_factors = nullptr) {
  for (int64_t i = 0; i < n; ++i) {
    if (i + kPrefetchRows < n) prefetch_row<true>(dst + (i + kPrefetchRows) * stride, D);
    T* to = dst + i * stride;
    const float* from = src.row(i);
    const float x = row_factors ? factor * row_factors[i] : factor;
    vec::for_each(D, [to, from, x](auto load, auto store) { store(to, load(from) * x); });
  }
}

using vec::transpose;

// dst (D, m) = src (m, D) transposed. The queries from m up to a whole panel become 0.
inline void transpose_rows(Matrix dst, Matrix src, int64_t m, int64_t D) {
  for (int64_t i = 0; i < round_up(m, kPanel); i += kLanes)
    for (int64_t d = 0; d < D; d += kLanes) {
      Vec block[kLanes];
      for (int64_t l = 0; l < kLanes; ++l) block[l] = i + l < m ? vec::load(src.row(i + l) + d) : Vec{};
      transpose(block);
      for (int64_t l = 0; l < std::min<int64_t>(kLanes, D - d); ++l) vec::store(dst.row(d + l) + i, block[l]);
    }
}

}  // namespace ingot::tile
