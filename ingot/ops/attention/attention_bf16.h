// Products of bf16 tiles with f32 sums, for attention: on AMX, the tile unit of Intel's processors since
// 2023, or on AVX512-BF16 (Zen 4 and later). INGOT_ATTENTION_BF16 is defined in builds that have them.
//
// An operand a (rows, k) is row-major. An operand b holds pairs: word (p, j) is elements 2p and 2p + 1 along
// k of column j. Both units read these layouts. Every dim is padded to blocks of 32.
#pragma once

#include <optional>

#include "ingot/ops/attention/attention_kernels.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__linux__)
#define INGOT_ATTENTION_BF16 1

#include "ingot/ops/matmul/matmul_engines.h"
#include "ingot/ops/simd/amx_tiles.h"
#include "ingot/ops/simd/bf16_unit.h"

namespace ingot::tile {

inline constexpr int64_t kBlock = 32;

struct Bf16Rows {
  uint16_t* data;
  int64_t ld;  // row stride in elements

  uint16_t* row(int64_t i) const { return data + i * ld; }
  Bf16Rows at(int64_t i, int64_t k) const { return {row(i) + k, ld}; }
};

inline const uint16_t* bits(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }

struct Bf16Pairs {
  uint32_t* data;
  int64_t ld;  // row stride in pairs

  uint32_t* row(int64_t p) const { return data + p * ld; }
  Bf16Pairs at(int64_t k, int64_t j) const { return {row(k / 2) + j, ld}; }  // k is even
};

// c (32, 32) += a (32, steps x 32) times b in AMX's tiles 0..7.
inline void multiply_block_amx(float* c, int64_t ldc, bool is_zero, Bf16Rows a, Bf16Pairs b, int64_t steps) {
#if defined(__AMX_BF16__)
  const auto stride_c = static_cast<size_t>(ldc) * 4, stride_a = static_cast<size_t>(a.ld) * 2,
             stride_b = static_cast<size_t>(b.ld) * 4;
  if (is_zero) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, c, stride_c);
    _tile_loadd(1, c + 16, stride_c);
    _tile_loadd(2, c + 16 * ldc, stride_c);
    _tile_loadd(3, c + 16 * ldc + 16, stride_c);
  }
  for (int64_t s = 0; s < steps; ++s) {
    const Bf16Rows rows = a.at(0, s * kBlock);
    const Bf16Pairs pairs = b.at(s * kBlock, 0);
    _tile_loadd(6, pairs.data, stride_b);
    _tile_loadd(4, rows.data, stride_a);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, pairs.data + 16, stride_b);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, rows.row(16), stride_a);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, stride_c);
  _tile_stored(1, c + 16, stride_c);
  _tile_stored(2, c + 16 * ldc, stride_c);
  _tile_stored(3, c + 16 * ldc + 16, stride_c);
#else
  static_cast<void>(c), static_cast<void>(ldc), static_cast<void>(is_zero), static_cast<void>(a),
      static_cast<void>(b), static_cast<void>(steps);
#endif
}

// The same in registers: 8 rows of 32 columns at a time.
inline void multiply_block_avx512(float* c, int64_t ldc, bool is_zero, Bf16Rows a, Bf16Pairs b,
                                  int64_t steps) {
  constexpr int kHeld = 8;
  for (int64_t first = 0; first < kBlock; first += kHeld) {
    __m512 sums[kHeld][2];
    _Pragma("GCC unroll 8") for (int i = 0; i < kHeld; ++i)
        _Pragma("GCC unroll 2") for (int w = 0; w < 2; ++w) sums[i][w] =
            is_zero ? _mm512_setzero_ps() : _mm512_loadu_ps(c + (first + i) * ldc + w * 16);
    for (int64_t p = 0; p < steps * kBlock / 2; ++p) {
      const __m512i columns[2] = {_mm512_loadu_si512(b.row(p)), _mm512_loadu_si512(b.row(p) + 16)};
      _Pragma("GCC unroll 8") for (int i = 0; i < kHeld; ++i) {
        int32_t pair;
        __builtin_memcpy(&pair, a.row(first + i) + 2 * p, sizeof pair);
        const __m512i x = _mm512_set1_epi32(pair);
        _Pragma("GCC unroll 2") for (int w = 0; w < 2; ++w) sums[i][w] = _mm512_dpbf16_ps(
            sums[i][w], reinterpret_cast<const __m512bh&>(x), reinterpret_cast<const __m512bh&>(columns[w]));
      }
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < kHeld; ++i)
        _Pragma("GCC unroll 2") for (int w = 0; w < 2; ++w)
            _mm512_storeu_ps(c + (first + i) * ldc + w * 16, sums[i][w]);
  }
}

// The unit that multiplies. A thread that uses AMX holds the configuration of its tiles (simd/amx_tiles.h).
enum class Bf16Unit { kAmx, kAvx512 };
inline Bf16Unit bf16_unit() {
#if defined(__AMX_BF16__)
  if (amx::is_available()) return Bf16Unit::kAmx;
#endif
  return Bf16Unit::kAvx512;
}

// Returns true where a bf16 unit is the faster way: for head sizes that fill whole blocks, on a processor
// that multiplies bf16 faster than f32. Otherwise products are computed in f32.
inline bool fits_bf16_units(const AttentionShape& shape) {
  return shape.D % kBlock == 0 && (bf16_unit() == Bf16Unit::kAmx || has_fast_bf16_instruction());
}

// Buffers with padded rows, from f32 scratch. Rows of `columns` elements are an odd number of cache lines
// apart.
inline Bf16Rows bf16_rows(cpu::ScratchLayout& layout, int64_t rows, int64_t columns) {
  const int64_t words = leading_dim(round_up(columns, kBlock) / 2);
  return {reinterpret_cast<uint16_t*>(layout.take(round_up(rows, kBlock) * words)), 2 * words};
}
inline Bf16Pairs bf16_pairs(cpu::ScratchLayout& layout, int64_t depth, int64_t columns) {
  const int64_t words = leading_dim(round_up(columns, kBlock));
  return {reinterpret_cast<uint32_t*>(layout.take(round_up(depth, kBlock) / 2 * words)), words};
}

// c (rows, 32) = or += a (rows, depth) times b (depth, 32). depth is a multiple of 32. Rows of c from `rows`
// on stay as they are; those of a up to a multiple of 32 are read.
inline void multiply_panel(Bf16Unit unit, Matrix c, bool is_zero, Bf16Rows a, Bf16Pairs b, int64_t rows,
                           int64_t depth) {
  const auto multiply = [unit](float* block, int64_t ld, bool zero, Bf16Rows lines, Bf16Pairs pairs,
                               int64_t k) {
    if (unit == Bf16Unit::kAmx) return multiply_block_amx(block, ld, zero, lines, pairs, k / kBlock);
    multiply_block_avx512(block, ld, zero, lines, pairs, k / kBlock);
  };
  for (int64_t i = 0; i < rows; i += kBlock) {
    const int64_t count = std::min(kBlock, rows - i);
    if (count == kBlock) {
      multiply(c.row(i), c.ld, is_zero, a.at(i, 0), b, depth);
      continue;
    }
    alignas(64) float sums[kBlock * kBlock] = {};
    for (int64_t r = 0; r < count && !is_zero; ++r) std::copy_n(c.row(i + r), kBlock, sums + r * kBlock);
    multiply(sums, kBlock, false, a.at(i, 0), b, depth);
    for (int64_t r = 0; r < count; ++r) std::copy_n(sums + r * kBlock, kBlock, c.row(i + r));
  }
}

// Returns words of 16 columns: the low half of word j is low's element j and the high half is high's.
inline __m512i interleave(__m256i low, __m256i high) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

inline __m256i bf16_line(const uint16_t* from, bool is_there) {
  return is_there ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)) : _mm256_setzero_si256();
}

inline __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (1 << std::max<int64_t>(count, 0)) - 1);
}

// Rounds 16 floats to bf16; lanes outside the mask become 0.
inline __m256i rounded(Vec x, __mmask16 lanes) {
  const __m256bh bits = _mm512_maskz_cvtneps_pbh(lanes, (__m512)x);
  return reinterpret_cast<const __m256i&>(bits);
}
inline __m256i rounded(const float* from, int64_t count) {
  const __mmask16 lanes = first_lanes(count);
  return rounded((Vec)_mm512_maskz_loadu_ps(lanes, from), lanes);
}

inline void store_lanes(uint16_t* to, __m256i lanes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), lanes);
}

// dst (n, D) = rows of src that are `stride` elements apart. Rows from n up to a multiple of 32 become 0.
inline void copy_rows(Bf16Rows dst, const uint16_t* src, int64_t stride, int64_t n, int64_t D) {
  for (int64_t i = 0; i < round_up(n, kBlock); ++i)
    for (int64_t d = 0; d < D; d += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst.row(i) + d), bf16_line(src + i * stride + d, i < n));
}

// dst (n/2, D) = pairs along the n rows of src, which are 0 from n up to a multiple of 32.
inline void pair_rows(Bf16Pairs dst, Bf16Rows src, int64_t n, int64_t D) {
  for (int64_t i = 0; i < round_up(n, kBlock); i += 2)
    for (int64_t d = 0; d < D; d += 16)
      _mm512_storeu_si512(dst.row(i / 2) + d,
                          interleave(bf16_line(src.row(i) + d, true), bf16_line(src.row(i + 1) + d, true)));
}

// to (columns, rows) = from (rows, columns) transposed, in words of 32 bits; both counts are multiples of 16.
inline void transpose_words(uint32_t* to, int64_t ld_to, const uint32_t* from, int64_t ld_from, int64_t rows,
                            int64_t columns) {
  for (int64_t i = 0; i < rows; i += kLanes)
    for (int64_t j = 0; j < columns; j += kLanes) {
      Vec block[kLanes];
      for (int64_t l = 0; l < kLanes; ++l)
        block[l] = (Vec)_mm512_castsi512_ps(_mm512_loadu_si512(from + (i + l) * ld_from + j));
      transpose(block);
      for (int64_t l = 0; l < kLanes; ++l)
        _mm512_storeu_si512(to + (j + l) * ld_to + i, _mm512_castps_si512((__m512)block[l]));
    }
}

// dst (D/2, n) = pairs along D of the n rows of src.
inline void pair_columns(Bf16Pairs dst, Bf16Rows src, int64_t n, int64_t D) {
  transpose_words(dst.data, dst.ld, reinterpret_cast<const uint32_t*>(src.data), src.ld / 2,
                  round_up(n, kBlock), D / 2);
}

// dst (D, n) = src (n, D) transposed; columns from n up to a multiple of 32 become 0, as those rows of src
// are.
inline void transpose_rows(Bf16Rows dst, Bf16Rows src, int64_t n, int64_t D) {
  alignas(64) uint32_t pairs[kLanes * kLanes];
  for (int64_t i = 0; i < round_up(n, kBlock); i += kBlock)
    for (int64_t d = 0; d < D; d += kLanes) {
      pair_rows({pairs, kLanes}, src.at(i, d), kBlock, kLanes);
      transpose_words(reinterpret_cast<uint32_t*>(dst.row(d) + i), dst.ld / 2, pairs, kLanes, kLanes, kLanes);
    }
}

// Returns columns [first, first + n) of all D rows of src, as they are or, if n is no multiple of 32, copied
// to `copy` with zeros behind them. Hidden columns may hold NaN, which a probability of 0 does not cancel.
inline Bf16Rows padded_columns(Bf16Rows src, Bf16Rows copy, int64_t first, int64_t n, int64_t D) {
  if (n % kBlock == 0) return src.at(0, first);
  for (int64_t d = 0; d < D; ++d)
    for (int64_t j = 0; j < round_up(n, kBlock); j += kBlock) {
      const int64_t left = std::min(kBlock, n - j);
      const __mmask32 mask = left == kBlock ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
      _mm512_storeu_si512(copy.row(d) + j, _mm512_maskz_loadu_epi16(mask, src.row(d) + first + j));
    }
  return copy;
}

// dst (n/2, m) = pairs along the rows of p (n, m), rounded; rows from n and columns from m on become 0, up to
// multiples of 32.
inline void round_to_pairs(Bf16Pairs dst, Matrix p, int64_t n, int64_t m) {
  for (int64_t j = 0; j < round_up(n, kBlock); j += 2)
    for (int64_t i = 0; i < round_up(m, kBlock); i += 16)
      _mm512_storeu_si512(dst.row(j / 2) + i, interleave(rounded(p.row(j) + i, j < n ? m - i : 0),
                                                         rounded(p.row(j + 1) + i, j + 1 < n ? m - i : 0)));
}

// s^T (keys, queries) = a (keys, D) times pairs (D, queries), at least where the query sees the key.
inline void score_product(Bf16Unit unit, Matrix s, Bf16Rows a, Bf16Pairs columns, const Block& block,
                          int64_t D) {
  for (int64_t q = 0; q < block.m; q += kBlock)
    multiply_panel(unit, {s.data + q, s.ld}, true, a, columns.at(0, q),
                   block.visible_keys(std::min(q + kBlock, block.m) - 1), D);
}

// c^T (D, queries) = or += a (D, keys) times p (keys, queries), over the keys that a panel of queries sees.
inline void sum_over_keys(Bf16Unit unit, Matrix c, bool is_zero, Bf16Rows a, Bf16Pairs p, const Block& block,
                          int64_t D) {
  for (int64_t q = 0; q < block.m; q += kBlock) {
    const int64_t keys = round_up(block.visible_keys(std::min(q + kBlock, block.m) - 1), kBlock);
    if (keys > 0 || is_zero) multiply_panel(unit, {c.data + q, c.ld}, is_zero, a, p.at(0, q), D, keys);
  }
}

// c (keys, D) += p (keys, queries) times pairs (queries, D), over the queries that see a panel of keys.
inline void sum_over_queries(Bf16Unit unit, Matrix c, Bf16Rows p, Bf16Pairs b, const Block& block,
                             int64_t D) {
  for (int64_t j = 0; j < block.n; j += kBlock) {
    const int64_t q = block.first_query(j) / kBlock * kBlock;
    if (q >= block.m) break;
    for (int64_t d = 0; d < D; d += kBlock)
      multiply_panel(unit, {c.row(j) + d, c.ld}, false, p.at(j, q), b.at(q, d), std::min(kBlock, block.n - j),
                     round_up(block.m, kBlock) - q);
  }
}

}  // namespace ingot::tile
#endif
