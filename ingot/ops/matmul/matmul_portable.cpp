// Blocked product after Goto & van de Geijn 2008 ("Anatomy of high-performance matrix multiplication").
// It packs panels of b (kBlockK x kBlockN) and of a (kBlockM x kBlockK) to f32 in the order that the
// micro-kernel reads them; the micro-kernel keeps a kTileM x kTileN tile of c in registers. Each thread
// computes its own rows or columns of c and packs for itself.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "ingot/core/parallel.h"
#include "ingot/ops/matmul/matmul_engines.h"
#include "ingot/ops/simd/vec.h"
#include "ingot/ops/simd/vec_transpose.h"

namespace ingot::portable {
namespace {

using vec::kLanes;
using vec::Vec;

constexpr int kTileM = vec::kBytes == 64 ? 12 : 6;
constexpr int kTileVecs = 2;
constexpr int kTileN = kTileVecs * kLanes;
constexpr int64_t kBlockM = 16 * kTileM;
constexpr int64_t kBlockK = 256;
constexpr int64_t kBlockN = 64 * kTileN;

// Numbers that begin at a cache line: a vector that crosses two lines costs two reads.
class Panel {
 public:
  explicit Panel(int64_t size) : memory_(static_cast<size_t>(size) + kLine) {}
  float* data() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (kLine - address / sizeof(float) % kLine) % kLine;
  }

 private:
  static constexpr size_t kLine = 64 / sizeof(float);
  std::vector<float> memory_;
};

// The packing buffers of every thread, made once per stream. Products of few rows need none.
struct Panels : StreamResource {
  struct PerThread {
    Panel a{kBlockM * kBlockK}, b{kBlockN * kBlockK}, rounded{4 * kBlockM * kBlockN};
  };
  std::vector<PerThread> threads;
};

// The elements (i, k) of op(a), or (k, j) of op(b), at base[outer * ld + inner].
template <typename T>
struct Operand {
  const T* base;
  int64_t ld;
  bool is_k_contiguous;  // true if consecutive k are adjacent in memory
};

// Packs `lines` lines of consecutive k into a strip out[k][width], whose other columns become zero.
template <typename T>
void pack_transposed(float* out, const T* from, int64_t ld, int64_t lines, int64_t depth, int width) {
  for (int64_t first = 0; first < width; first += kLanes)
    for (int64_t k = 0; k < depth; k += kLanes) {
      const int64_t steps = std::min<int64_t>(kLanes, depth - k),
                    columns = std::min<int64_t>(kLanes, width - first);
      Vec block[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        const T* line = from + (first + i) * ld + k;
        if (first + i >= lines)
          block[i] = Vec{};
        else
          block[i] = steps == kLanes ? vec::load(line) : vec::load_first(line, steps);
      }
      vec::transpose(block);
      for (int64_t i = 0; i < steps; ++i) {
        float* row = out + (k + i) * width + first;
        if (columns == kLanes)
          vec::store(row, block[i]);
        else
          vec::store_first(row, block[i], columns);
      }
    }
}

// Packs lines [line, line+count) x depth k into strips of `width` lines: out[strip][k][width], zero-padded.
template <typename T>
void pack(float* out, const Operand<T>& source, int64_t line, int64_t count, int64_t k_begin, int64_t depth,
          int width) {
  for (int64_t strip = 0; strip < count; strip += width, out += depth * width) {
    const int64_t lines = std::min<int64_t>(width, count - strip);
    if (source.is_k_contiguous) {
      pack_transposed(out, source.base + (line + strip) * source.ld + k_begin, source.ld, lines, depth,
                      width);
    } else {
      if (lines < width) std::fill_n(out, depth * width, 0.0f);
      for (int64_t k = 0; k < depth; ++k) {
        const T* from = source.base + (k_begin + k) * source.ld + line + strip;
        vec::for_each(lines, [&](auto load, auto store) { store(out + k * width, load(from)); });
      }
    }
  }
}

// tile (kTileM, kTileN) = sum over k of a[k][.] outer b[k][.]
void micro_kernel(float* tile, const float* a, const float* b, int64_t depth) {
  Vec sums[kTileM][kTileVecs] = {};
  for (int64_t k = 0; k < depth; ++k, a += kTileM, b += kTileN) {
    Vec columns[kTileVecs];
    for (int j = 0; j < kTileVecs; ++j) columns[j] = vec::load(b + j * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kTileM; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < kTileVecs; ++j) sums[i][j] += a[i] * columns[j];
  }
  for (int i = 0; i < kTileM; ++i)
    for (int j = 0; j < kTileVecs; ++j) vec::store(tile + i * kTileN + j * kLanes, sums[i][j]);
}

// Adds alpha * tile to the f32 c, or overwrites c in the first block of k.
void store_tile(float* c, int64_t ldc, const float* tile, int64_t rows, int64_t columns, float alpha,
                bool is_first) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const float product = alpha * tile[i * kTileN + j];
      c[i * ldc + j] = is_first ? product : c[i * ldc + j] + product;
    }
}

// Computes a range of rows and of columns of an f32 product; c is their first element.
template <typename T>
void multiply_part(const MatmulProblem& p, float* c, int64_t ldc, Range c_rows, Range c_columns,
                   bool accumulate, Panels::PerThread& panels) {
  const Operand<T> a{static_cast<const T*>(p.a), p.lda, p.form != MatmulForm::kTN};
  const Operand<T> b{static_cast<const T*>(p.b), p.ldb, p.form == MatmulForm::kNT};
  alignas(64) float tile[kTileM * kTileN];
  for (int64_t n = c_columns.begin; n < c_columns.end; n += kBlockN) {
    const int64_t columns = std::min(kBlockN, c_columns.end - n);
    for (int64_t k = 0; k < p.K; k += kBlockK) {
      const int64_t depth = std::min(kBlockK, p.K - k);
      pack(panels.b.data(), b, n, columns, k, depth, kTileN);
      for (int64_t m = c_rows.begin; m < c_rows.end; m += kBlockM) {
        const int64_t rows = std::min(kBlockM, c_rows.end - m);
        pack(panels.a.data(), a, m, rows, k, depth, kTileM);
        for (int64_t j = 0; j < columns; j += kTileN)
          for (int64_t i = 0; i < rows; i += kTileM) {
            micro_kernel(tile, panels.a.data() + i * depth, panels.b.data() + j * depth, depth);
            store_tile(c + (m - c_rows.begin + i) * ldc + n - c_columns.begin + j, ldc, tile,
                       std::min<int64_t>(kTileM, rows - i), std::min<int64_t>(kTileN, columns - j), p.alpha,
                       k == 0 && !accumulate);
          }
      }
    }
  }
}

// Streaming of b, as measured (docs/benchmarks/matmul.md): f32 is fastest as four rows at one time, 16-bit
// numbers as one row with its next lines prefetched.
template <typename T>
constexpr int kRowsAtOnce = sizeof(T) == sizeof(float) ? 4 : 1;
template <typename T>
constexpr int kSumsPerRow = 4 / kRowsAtOnce<T>;  // independent sums hide the latency of additions

constexpr int64_t kBytesAhead = 4096;  // 16-bit numbers are prefetched this far ahead

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
// Returns the dot product of a and b (n). VDPBF16PS needs no conversions, which leaves room for more reads at
// one time (docs/benchmarks/matmul.md).
float streamed_dot(const bf16* a, const bf16* b, int64_t n) {
  constexpr int64_t kNumbers = 32;  // in a register
  const auto add = [](__m512 sum, __m512i x, __m512i y) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
  };
  __m512 first = _mm512_setzero_ps(), second = first;
  int64_t i = 0;
  for (; i + 2 * kNumbers <= n; i += 2 * kNumbers) {
    const auto* ahead = reinterpret_cast<const char*>(b + i) + kBytesAhead;
    __builtin_prefetch(ahead);
    __builtin_prefetch(ahead + 64);
    first = add(first, _mm512_loadu_si512(a + i), _mm512_loadu_si512(b + i));
    second = add(second, _mm512_loadu_si512(a + i + kNumbers), _mm512_loadu_si512(b + i + kNumbers));
  }
  for (; i < n; i += kNumbers) {
    const __mmask32 rest = n - i >= kNumbers ? ~__mmask32{0} : (__mmask32{1} << (n - i)) - 1;
    first = add(first, _mm512_maskz_loadu_epi16(rest, a + i), _mm512_maskz_loadu_epi16(rest, b + i));
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(first, second));
}
#endif

// dots[r] = the dot product of a (n) and row r of b (kRows, n). A row's sum does not depend on kRows.
template <int kRows, typename T>
void streamed_dots(float* dots, const T* a, const T* b, int64_t ldb, int64_t n) {
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
  if constexpr (std::is_same_v<T, bf16>) {
    for (int r = 0; r < kRows; ++r) dots[r] = streamed_dot(a, b + r * ldb, n);
    return;
  }
#endif
  constexpr int kSums = kSumsPerRow<T>;
  constexpr int64_t kStep = kSums * kLanes, kLine = 64 / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kAhead = kBytesAhead / static_cast<int64_t>(sizeof(T));
  Vec sums[kRows][kSums] = {};
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    if constexpr (kRowsAtOnce<T> == 1)
      for (int64_t line = 0; line < kStep; line += kLine) __builtin_prefetch(b + i + kAhead + line);
    for (int j = 0; j < kSums; ++j) {
      const Vec x = vec::load(a + i + j * kLanes);
      for (int r = 0; r < kRows; ++r)
        sums[r][j] = vec::fma(x, vec::load(b + r * ldb + i + j * kLanes), sums[r][j]);
    }
  }
  vec::for_each(n - i, [&](auto load, auto) {
    for (int r = 0; r < kRows; ++r) sums[r][0] = vec::fma(load(a + i), load(b + r * ldb + i), sums[r][0]);
  });
  for (int r = 0; r < kRows; ++r) {
    for (int j = 1; j < kSums; ++j) sums[r][0] += sums[r][j];
    dots[r] = vec::sum(sums[r][0]);
  }
}

// The kNT product of a few rows (generation): dot products with the rows of b, which stream from memory once.
template <typename T, typename Out>
void multiply_few_rows(const MatmulProblem& p) {
  constexpr int kRows = kRowsAtOnce<T>;
  const T* a = static_cast<const T*>(p.a);
  const T* b = static_cast<const T*>(p.b);
  Out* c = static_cast<Out*>(p.c);
  parallel_for(p.N, 64, [&](int64_t begin, int64_t end) {
    float dots[kRows];
    for (int64_t n = begin; n < end; n += kRows) {
      const int64_t rows = std::min<int64_t>(kRows, end - n);
      for (int64_t m = 0; m < p.M; ++m) {
        if (rows == kRows)
          streamed_dots<kRows>(dots, a + m * p.lda, b + n * p.ldb, p.ldb, p.K);
        else
          for (int64_t r = 0; r < rows; ++r)
            streamed_dots<1>(dots + r, a + m * p.lda, b + (n + r) * p.ldb, p.ldb, p.K);
        for (int64_t r = 0; r < rows; ++r) {
          Out& y = c[m * p.ldc + n + r];
          y = Out((p.accumulate ? static_cast<float>(y) : 0.0f) + p.alpha * dots[r]);
        }
      }
    }
  });
}

// Computes a 16-bit c: products of 4 * kBlockM rows at a time go through an f32 block, so that they are
// rounded once.
template <typename T, typename Out>
void multiply_rounded(const MatmulProblem& p, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                      Panels::PerThread& panels) {
  Out* c = static_cast<Out*>(p.c);
  for (int64_t n = n0; n < n1; n += kBlockN)
    for (int64_t m = m0; m < m1; m += 4 * kBlockM) {
      const int64_t rows = std::min(4 * kBlockM, m1 - m), columns = std::min(kBlockN, n1 - n);
      multiply_part<T>(p, panels.rounded.data(), columns, {m, m + rows}, {n, n + columns}, false, panels);
      for (int64_t i = 0; i < rows; ++i)
        vec::for_each(columns, [&](auto load, auto store) {
          store(c + (m + i) * p.ldc + n, load(panels.rounded.data() + i * columns));
        });
    }
}

Panels& panels_of(Stream& stream) {
  std::unique_ptr<StreamResource>& place = matmul_panels(stream).portable;
  if (!place) place = std::make_unique<Panels>();
  auto& panels = static_cast<Panels&>(*place);
  if (std::ssize(panels.threads) < num_threads()) panels.threads.resize(static_cast<size_t>(num_threads()));
  return panels;
}

template <typename T, typename Out>
void multiply(const MatmulProblem& p, Stream& stream) {
  if (p.form == MatmulForm::kNT && p.M <= kFewRows) return multiply_few_rows<T, Out>(p);
  Panels& panels = panels_of(stream);
  const bool by_rows = p.M >= p.N;
  const int64_t step = by_rows ? kTileM : kTileN;
  const int64_t lines = by_rows ? p.M : p.N;
  parallel_ranges((lines + step - 1) / step, 1, [&](int thread, int64_t begin, int64_t end) {
    const int64_t first = begin * step, last = std::min(end * step, lines);
    const int64_t m0 = by_rows ? first : 0, m1 = by_rows ? last : p.M;
    const int64_t n0 = by_rows ? 0 : first, n1 = by_rows ? p.N : last;
    Panels::PerThread& own = panels.threads[static_cast<size_t>(thread)];
    if constexpr (std::is_same_v<Out, float>)
      multiply_part<T>(p, static_cast<float*>(p.c) + m0 * p.ldc + n0, p.ldc, {m0, m1}, {n0, n1}, p.accumulate,
                       own);
    else
      multiply_rounded<T, Out>(p, m0, m1, n0, n1, own);
  });
}

template <typename T>
void multiply_halves(const MatmulProblem& p, Stream& stream) {
  if (p.out == DType::f32) return multiply<T, float>(p, stream);
  return p.out == DType::bf16 ? multiply<T, bf16>(p, stream) : multiply<T, f16>(p, stream);
}

}  // namespace

void matmul(const MatmulProblem& p, Stream& stream) {
  if (p.in == DType::f32) return multiply<float, float>(p, stream);
  return p.in == DType::bf16 ? multiply_halves<bf16>(p, stream) : multiply_halves<f16>(p, stream);
}

}  // namespace ingot::portable
