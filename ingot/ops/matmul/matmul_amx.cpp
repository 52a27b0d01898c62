// bf16 products on AMX, the tile unit of Intel's processors since 2023. The file is empty without AMX.
//
// The blocking follows Goto & van de Geijn 2008 ("Anatomy of high-performance matrix multiplication").
// The kernel holds 32 x 32 of c in four tiles of f32 and advances by 32 of k per step: it loads two
// tiles of a (16 rows of 32 k) and two of b (16 pairs of k by 16 columns) for four products, so loads
// from the L1 cache keep up. Operands of every form are packed into such tiles: lines along k are the
// tiles of a directly and the tiles of b after a transposition; lines across k are the reverse. A block of
// b is packed into the L2 cache. Then each panel of a is packed, into the L1 cache, and multiplied by
// the whole block. Each thread computes its own rectangle of c and packs for itself; k is never divided
// among threads, so results do not depend on their number.
#if defined(__AMX_BF16__) && defined(__AVX512BW__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ingot/core/parallel.h"
#include "ingot/ops/matmul/matmul_engines.h"
#include "ingot/ops/simd/amx_tiles.h"

namespace ingot::amx {
namespace {

constexpr int64_t kPanel = 32;              // rows of a, columns of b, and k of a step
constexpr int64_t kTileLines = 16;          // rows of a tile
constexpr int64_t kTile = kTileLines * 32;  // elements of a tile of bf16: 1 KB
constexpr int64_t kBlockK = 384;            // a panel of a, 24 KB, fills half of the L1 cache
constexpr int64_t kBlockN = 768;            // a block of b, 576 KB, stays in the L2 cache
constexpr int64_t kSumRows = 1024;          // rows whose f32 sums are kept if c is bf16 and k is long
constexpr int64_t kSumLd = kBlockN + 16;    // not a power of two, so that rows fall into different cache sets
constexpr double kProductsPerPacked = 100;  // multiplications that take as long as packing one element
constexpr double kLeastWork = 1 << 21;      // multiplications that are worth a thread

// A buffer of whole cache lines.
template <typename T>
class Lines {
 public:
  void resize(int64_t elements) { lines_.resize(static_cast<size_t>(elements) / std::size(Line{}.values)); }
  T* data() { return lines_.data()->values; }

 private:
  struct alignas(64) Line {
    T values[64 / sizeof(T)];
  };
  std::vector<Line> lines_;
};

// The buffers of every thread, made once per stream.
struct Panels : StreamResource {
  struct PerThread {
    Lines<uint16_t> a, b;
    Lines<float> sums;
  };
  std::vector<PerThread> threads;
};

// The elements (line, k) of an operand; lines are rows of op(a) or columns of op(b).
struct Operand {
  const uint16_t* base;
  int64_t ld;
  bool is_k_contiguous;
};

struct Vectors {
  __m512i v[kTileLines];
  __m512i& operator[](int64_t i) { return v[i]; }
};

// Transposes 16 x 16 elements of 32 bits.
inline void transpose(Vectors& v) {
  Vectors t;
  for (int64_t i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int64_t i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int64_t i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
  }
  for (int64_t i = 0; i < 8; ++i) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

inline __mmask32 first(int64_t n) {
  return n >= 32 ? ~__mmask32{0} : (__mmask32{1} << std::max<int64_t>(n, 0)) - 1;
}

// Loads 16 lines of 32 k from lines that run along k. The source has `lines` lines and `depth` k; the
// rest is zero.
inline Vectors load_lines(const uint16_t* from, int64_t ld, int64_t lines, int64_t depth) {
  Vectors v;
  const __mmask32 mask = first(depth);
  for (int64_t i = 0; i < kTileLines; ++i)
    v[i] = _mm512_maskz_loadu_epi16(i < lines ? mask : 0, from + i * ld);
  return v;
}

// Interleaves two vectors of 32: the first 32 indices select the low half of the result, the last 32 the
// high half.
alignas(64) constexpr std::array<uint16_t, 64> kInterleave = [] {
  std::array<uint16_t, 64> order{};
  for (uint16_t i = 0; i < 64; ++i) order[i] = static_cast<uint16_t>(i / 2 + (i % 2) * 32);
  return order;
}();

// Loads the same from lines that run across k: each vector is a pair of k for lines 0..15 (kHalf 0) or
// 16..31 (kHalf 1).
template <int kHalf>
inline Vectors load_pairs(const uint16_t* from, int64_t ld, int64_t lines, int64_t depth) {
  const __m512i order = _mm512_load_si512(kInterleave.data() + kHalf * 32);
  const __mmask32 mask = first(lines);
  Vectors v;
  for (int64_t i = 0; i < kTileLines; ++i) {
    const __m512i even = _mm512_maskz_loadu_epi16(2 * i < depth ? mask : 0, from + 2 * i * ld);
    const __m512i odd = _mm512_maskz_loadu_epi16(2 * i + 1 < depth ? mask : 0, from + (2 * i + 1) * ld);
    v[i] = _mm512_permutex2var_epi16(even, order, odd);
  }
  return v;
}

// Copies 32 lines that run across k into both tiles at once, in the order of b.
inline void copy_pairs(uint16_t* to, const uint16_t* from, int64_t ld, int64_t lines, int64_t depth) {
  const __m512i low = _mm512_load_si512(kInterleave.data()),
                high = _mm512_load_si512(kInterleave.data() + 32);
  const __mmask32 mask = first(lines);
  for (int64_t i = 0; i < kTileLines; ++i, from += 2 * ld, to += 32) {
    const __m512i even = _mm512_maskz_loadu_epi16(2 * i < depth ? mask : 0, from);
    const __m512i odd = _mm512_maskz_loadu_epi16(2 * i + 1 < depth ? mask : 0, from + ld);
    _mm512_store_si512(to, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_store_si512(to + kTile, _mm512_permutex2var_epi16(even, high, odd));
  }
}

template <bool kTransposed>
inline void store_tile(uint16_t* to, Vectors v) {
  if constexpr (kTransposed) transpose(v);
  for (int64_t i = 0; i < kTileLines; ++i) _mm512_store_si512(to + i * 32, v[i]);
}

// Packs 32 lines and 32 k into the two tiles at `out`.
template <bool kIsKContiguous, bool kTransposed>
inline void pack_tiles(uint16_t* out, const uint16_t* from, int64_t ld, int64_t lines, int64_t ks) {
  if constexpr (kIsKContiguous) {
    store_tile<kTransposed>(out, load_lines(from, ld, lines, ks));
    store_tile<kTransposed>(out + kTile, load_lines(from + kTileLines * ld, ld, lines - kTileLines, ks));
  } else if constexpr (kTransposed) {
    // The next panel is read when this one has been multiplied: time enough to bring it into the L2 cache.
    for (int64_t i = 0; i < kPanel; ++i) _mm_prefetch(from + i * ld + kPanel, _MM_HINT_T1);
    store_tile<kTransposed>(out, load_pairs<0>(from, ld, lines, ks));
    store_tile<kTransposed>(out + kTile, load_pairs<1>(from, ld, lines, ks));
  } else {
    copy_pairs(out, from, ld, lines, ks);
  }
}

// Packs lines [line, line + count), k [k_begin, k_begin + depth) into panels of 32 lines. The steps of k
// of a panel are contiguous, two tiles each.
template <bool kIsKContiguous, bool kTransposed>
void pack(uint16_t* out, const Operand& source, int64_t line, int64_t count, int64_t k_begin, int64_t depth) {
  const int64_t panel_size = (depth + kPanel - 1) / kPanel * 2 * kTile, ld = source.ld;
  const auto tiles = [&](int64_t panel, int64_t k) {
    const uint16_t* from = kIsKContiguous ? source.base + (line + panel) * ld + k_begin + k
                                          : source.base + (k_begin + k) * ld + line + panel;
    pack_tiles<kIsKContiguous, kTransposed>(out + panel / kPanel * panel_size + k * 2 * kTile / kPanel, from,
                                            ld, count - panel, depth - k);
  };
  if constexpr (kIsKContiguous || kTransposed) {
    for (int64_t panel = 0; panel < count; panel += kPanel)
      for (int64_t k = 0; k < depth; k += kPanel) tiles(panel, k);
  } else {
    // Rows are read to their ends, because the processor prefetches along them.
    for (int64_t k = 0; k < depth; k += kPanel)
      for (int64_t panel = 0; panel < count; panel += kPanel) tiles(panel, k);
  }
}

void pack_a(uint16_t* out, const Operand& a, int64_t line, int64_t count, int64_t k_begin, int64_t depth) {
  if (a.is_k_contiguous) return pack<true, false>(out, a, line, count, k_begin, depth);
  pack<false, true>(out, a, line, count, k_begin, depth);
}
void pack_b(uint16_t* out, const Operand& b, int64_t line, int64_t count, int64_t k_begin, int64_t depth) {
  if (b.is_k_contiguous) return pack<true, true>(out, b, line, count, k_begin, depth);
  pack<false, false>(out, b, line, count, k_begin, depth);
}

// c (32, 32) = or += a panel of a times a panel of b, over `steps` x 32 of k.
void kernel(float* c, int64_t ldc, bool accumulate, const uint16_t* a, const uint16_t* b, int64_t steps) {
  const auto stride = static_cast<size_t>(ldc) * sizeof(float);
  if (accumulate) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
    _tile_loadd(2, c + 16 * ldc, stride);
    _tile_loadd(3, c + 16 * ldc + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t s = 0; s < steps; ++s, a += 2 * kTile, b += 2 * kTile) {
    for (int64_t line = 0; line < 2 * kTile; line += 32) _mm_prefetch(b + 2 * kTile * 2 + line, _MM_HINT_T0);
    _tile_loadd(6, b, 64);
    _tile_loadd(4, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTile, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTile, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  _tile_stored(2, c + 16 * ldc, stride);
  _tile_stored(3, c + 16 * ldc + 16, stride);
}

// c (rows, columns), at most 32 each: = or += alpha * tile.
void store_f32(float* c, int64_t ldc, const float* tile, int64_t rows, int64_t columns, float alpha,
               bool accumulate) {
  const __m512 factor = _mm512_set1_ps(alpha);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += 16) {
      const auto mask = static_cast<__mmask16>(first(columns - j));
      const __m512 before = _mm512_maskz_loadu_ps(accumulate ? mask : __mmask16{0}, c + i * ldc + j);
      const __m512 product = _mm512_loadu_ps(tile + i * kPanel + j);
      _mm512_mask_storeu_ps(c + i * ldc + j, mask, _mm512_fmadd_ps(factor, product, before));
    }
}

// c (rows, columns) bf16 = alpha * sums, rounded.
void store_bf16(uint16_t* c, int64_t ldc, const float* sums, int64_t ld, int64_t rows, int64_t columns,
                float alpha) {
  const __m512 factor = _mm512_set1_ps(alpha);
  for (int64_t i = 0; i < rows; ++i) {
    const __m512 low = _mm512_mul_ps(factor, _mm512_loadu_ps(sums + i * ld)),
                 high = _mm512_mul_ps(factor, _mm512_loadu_ps(sums + i * ld + 16));
    const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
    _mm512_mask_storeu_epi16(c + i * ldc, first(columns), reinterpret_cast<const __m512i&>(both));
  }
}

// Computes one thread's rectangle of c.
class Part {
 public:
  Part(const MatmulProblem& problem, Panels::PerThread& panels)
      : p_(problem),
        panels_(panels),
        a_{static_cast<const uint16_t*>(problem.a), problem.lda, problem.form != MatmulForm::kTN},
        b_{static_cast<const uint16_t*>(problem.b), problem.ldb, problem.form == MatmulForm::kNT} {}

  void run(Range m, Range n) {
    const Tiles tiles;
    for (int64_t j = n.begin; j < n.end; j += kBlockN)
      for (int64_t i = m.begin; i < m.end; i += kSumRows)
        run_columns({i, std::min(i + kSumRows, m.end)}, {j, std::min(j + kBlockN, n.end)});
  }

 private:
  void run_columns(Range m, Range n) {
    for (int64_t k = 0; k < p_.K; k += kBlockK) {
      const int64_t depth = std::min(kBlockK, p_.K - k), steps = (depth + kPanel - 1) / kPanel;
      pack_b(panels_.b.data(), b_, n.begin, n.end - n.begin, k, depth);
      for (int64_t row = m.begin; row < m.end; row += kPanel) {
        pack_a(panels_.a.data(), a_, row, std::min(kPanel, m.end - row), k, depth);
        const uint16_t* b = panels_.b.data();
        for (int64_t column = n.begin; column < n.end; column += kPanel, b += steps * 2 * kTile)
          run_panels(m, n, row, column, k, panels_.a.data(), b);
      }
    }
  }

  // Computes the 32 x 32 block of c at (row, column) over the block of k that begins at k.
  void run_panels(Range m, Range n, int64_t row, int64_t column, int64_t k, const uint16_t* a,
                  const uint16_t* b) {
    const int64_t rows = std::min(kPanel, m.end - row), columns = std::min(kPanel, n.end - column);
    const int64_t left = p_.K - k, steps = (std::min(kBlockK, left) + kPanel - 1) / kPanel;
    alignas(64) float tile[kPanel * kPanel];
    if (p_.out == DType::f32) {
      float* c = static_cast<float*>(p_.c) + row * p_.ldc + column;
      kernel(tile, kPanel, false, a, b, steps);  // storing tiles directly into long rows is slow
      return store_f32(c, p_.ldc, tile, rows, columns, p_.alpha, p_.accumulate || k > 0);
    }
    // If k is long, the sums stay in memory between its blocks.
    const bool is_long = p_.K > kBlockK;
    const int64_t ld = is_long ? kSumLd : kPanel;
    float* sums = is_long ? panels_.sums.data() + (row - m.begin) * ld + column - n.begin : tile;
    kernel(sums, ld, k > 0, a, b, steps);
    if (left > kBlockK) return;
    auto* c = static_cast<uint16_t*>(p_.c) + row * p_.ldc + column;
    store_bf16(c, p_.ldc, sums, ld, rows, columns, p_.alpha);
  }

  const MatmulProblem& p_;
  Panels::PerThread& panels_;
  Operand a_, b_;
};

Panels& panels_of(Stream& stream) {
  std::unique_ptr<StreamResource>& place = matmul_panels(stream).amx;
  if (!place) place = std::make_unique<Panels>();
  auto& panels = static_cast<Panels&>(*place);
  if (std::ssize(panels.threads) < num_threads()) {
    panels.threads.resize(static_cast<size_t>(num_threads()));
    for (Panels::PerThread& t : panels.threads) {
      t.a.resize(kPanel * kBlockK);
      t.b.resize(kBlockN * kBlockK);
      t.sums.resize((kSumRows + 1) * kSumLd);
    }
  }
  return panels;
}

Range panels_range(int64_t n, int64_t parts, int64_t i) {
  const Range r = split_range((n + kPanel - 1) / kPanel, parts, i);
  return {r.begin * kPanel, std::min(r.end * kPanel, n)};
}

// The grid of threads; choose_grid returns the one with the lowest cost of packing and multiplying.
struct Grid {
  int64_t rows = 1, columns = 1;
};
Grid choose_grid(const MatmulProblem& p) {
  const double work = static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
  const int64_t threads = std::clamp<int64_t>(static_cast<int64_t>(work / kLeastWork), 1, num_threads());
  Grid best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t rows = 1; rows <= threads; ++rows) {
    if (threads % rows != 0) continue;
    const Grid grid{rows, threads / rows};
    const auto m = static_cast<double>(panels_range(p.M, rows, 0).end),
               n = static_cast<double>(panels_range(p.N, grid.columns, 0).end);
    const double cost = m * std::ceil(n / kBlockN) + n * std::ceil(m / kSumRows) + m * n / kProductsPerPacked;
    if (cost < least) {
      least = cost;
      best = grid;
    }
  }
  return best;
}

}  // namespace

bool is_available() {
  // The Linux kernel grants tile registers to a process that requests them (Linux 5.16).
  static const bool granted = [] {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return __builtin_cpu_supports("avx512bf16") &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return granted;
}

void matmul(const MatmulProblem& p, Stream& stream) {
  Panels& panels = panels_of(stream);
  const Grid grid = choose_grid(p);
  parallel_ranges(grid.rows * grid.columns, 1, [&](int thread, int64_t begin, int64_t end) {
    Part part(p, panels.threads[static_cast<size_t>(thread)]);
    for (int64_t i = begin; i < end; ++i)
      part.run(panels_range(p.M, grid.rows, i / grid.columns),
               panels_range(p.N, grid.columns, i % grid.columns));
  });
}

}  // namespace ingot::amx
#endif
