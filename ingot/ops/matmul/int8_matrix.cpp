#include "ingot/ops/int8_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/simd/vec.h"

namespace ingot {
namespace {

using vec::kLanes;
using vec::Vec;

constexpr int64_t kBlockRows = 256;  // rows of w that are widened at one time
constexpr int64_t kDotRows = 4;      // rows of x that one reading of a row of w serves

int64_t groups_of(int64_t K) { return (K + kInt8Group - 1) / kInt8Group; }

// One row of an Int8Matrix.
struct CodeRow {
  const int8_t* codes;
  const bf16* scales;
};
CodeRow code_row(const Int8Matrix& m, int64_t n) {
  return {reinterpret_cast<const int8_t*>(m.codes.as<uint8_t>()) + n * m.codes.dim(1),
          m.scales.as<bf16>() + n * m.scales.dim(1)};
}

void check_int8(const Int8Matrix& m, const char* op) {
  INGOT_CHECK(m.codes.rank() == 2 && m.codes.is_contiguous(), "{}: codes must be (N, K), contiguous, got {}",
              op, m.codes.shape.to_string());
  check_tensor(m.codes, DType::u8, m.codes.shape, op);
  check_tensor(m.scales, DType::bf16, {m.codes.dim(0), groups_of(m.codes.dim(1))}, op);
}

// Quantises a group of n values and returns its scale.
float quantize_group(uint8_t* codes, const float* w, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(w[i]));
  if (largest < 0x1p-100f) {
    std::fill_n(codes, n, uint8_t{0});
    return 0;
  }
  const auto scale = static_cast<float>(bf16(largest / 127));
  const float inverse = 1 / scale;
  // 1.5 * 2^23 makes the float's lowest bits those of the nearest integer, in two's complement.
  for (int64_t i = 0; i < n; ++i)
    codes[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(w[i] * inverse + 0x1.8p23f));
  return scale;
}

// to (K) = the row, plus `add` (K) unless it is null.
template <typename T>
void widen_codes(T* to, const CodeRow& row, int64_t K, const T* add = nullptr) {
  for (int64_t g = 0, k = 0; k < K; ++g, k += kInt8Group) {
    const Vec scale = vec::splat(static_cast<float>(row.scales[g]));
    vec::for_each(std::min(kInt8Group, K - k), [&](auto load, auto store) {
      const Vec w = scale * load(row.codes + k);
      store(to + k, add ? w + load(add + k) : w);
    });
  }
}

// dots[m] = the dot product of row m of x (kRows, K) and a row of w. The sum of a row of x does not depend on
// kRows.
template <int kRows>
void int8_dots(float* dots, const float* x, int64_t ldx, const CodeRow& row, int64_t K) {
  constexpr int64_t kAhead = 2048;  // bytes of codes that are prefetched
  Vec sums[kRows] = {};
  const int64_t whole = K / kInt8Group;
  for (int64_t g = 0; g < whole; ++g) {
    const int8_t* codes = row.codes + g * kInt8Group;
    const float* from = x + g * kInt8Group;
    __builtin_prefetch(codes + kAhead);
    Vec group[kRows] = {};
    for (int64_t i = 0; i < kInt8Group; i += kLanes) {
      const Vec w = vec::load(codes + i);
      for (int m = 0; m < kRows; ++m) group[m] += w * vec::load(from + m * ldx + i);
    }
    const auto scale = static_cast<float>(row.scales[g]);
    for (int m = 0; m < kRows; ++m) sums[m] += scale * group[m];
  }
  if (const int64_t k = whole * kInt8Group; k < K) {
    const Vec scale = vec::splat(static_cast<float>(row.scales[whole]));
    vec::for_each(K - k, [&](auto load, auto) {
      const Vec w = scale * load(row.codes + k);
      for (int m = 0; m < kRows; ++m) sums[m] += w * load(x + m * ldx + k);
    });
  }
  for (int m = 0; m < kRows; ++m) dots[m] = vec::sum(sums[m]);
}

// The same for 1 to kDotRows rows.
void int8_dots(float* dots, const float* x, int64_t ldx, int64_t rows, const CodeRow& row, int64_t K) {
  static_assert(kDotRows == 4);
  switch (rows) {
    case 1:
      return int8_dots<1>(dots, x, ldx, row, K);
    case 2:
      return int8_dots<2>(dots, x, ldx, row, K);
    case 3:
      return int8_dots<3>(dots, x, ldx, row, K);
    default:
      return int8_dots<4>(dots, x, ldx, row, K);
  }
}

// The product of a few rows: all of them read a row of w while it is in the first cache.
template <typename Out>
void multiply_streamed(const Tensor& y, const float* x, int64_t ldx, const Int8Matrix& w) {
  const int64_t M = y.dim(0), K = w.codes.dim(1), ldy = y.strides[0];
  Out* out = y.as<Out>();
  parallel_for(w.codes.dim(0), 64, [&](int64_t begin, int64_t end) {
    float dots[kInt8StreamedRows];
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t m = 0; m < M; m += kDotRows)
        int8_dots(dots + m, x + m * ldx, ldx, std::min(kDotRows, M - m), code_row(w, n), K);
      for (int64_t m = 0; m < M; ++m) out[m * ldy + n] = Out(dots[m]);
    }
  });
}

// Widens rows [first, first + count) of w and multiplies x by them.
void multiply_block(const Tensor& y, const Tensor& x, const Int8Matrix& w, const Tensor& room, int64_t first,
                    int64_t count, Stream& stream) {
  const Tensor block(room.data, x.dtype, {count, w.codes.dim(1)});
  int8_dequantize(block, w.rows(first, first + count), stream);
  matmul(y.columns(first, first + count), x, block, MatmulForm::kNT, false, stream);
}

}  // namespace

Int8Matrix alloc_int8(Arena& arena, int64_t N, int64_t K) {
  const Tensor codes = arena.alloc(DType::u8, {N, K});
  return {codes, arena.alloc(DType::bf16, {N, groups_of(K)})};
}

void int8_quantize(const Int8Matrix& q, const Tensor& w) {
  check_int8(q, "int8_quantize");
  check_tensor(w, DType::f32, q.codes.shape, "int8_quantize: w");
  const int64_t N = w.dim(0), K = w.dim(1), groups = groups_of(K);
  for (int64_t n = 0; n < N; ++n)
    for (int64_t g = 0, k = 0; g < groups; ++g, k += kInt8Group)
      q.scales.as<bf16>()[n * groups + g] = bf16(quantize_group(
          q.codes.as<uint8_t>() + n * K + k, w.as<float>() + n * K + k, std::min(kInt8Group, K - k)));
}

void int8_dequantize(const Tensor& w, const Int8Matrix& q, Stream& stream) {
  check_int8(q, "int8_dequantize");
  check_tensor(w, w.dtype, q.codes.shape, "int8_dequantize: w");
  const WorkSpan span(stream, "int8_dequantize", traffic({w, q.codes, q.scales}));
  if (span.plans()) return;
  const int64_t N = w.dim(0), K = w.dim(1);
  with_dtype(w.dtype, __func__, [&]<typename T>() {
    T* to = w.as<T>();
    parallel_for(N, 1 + kGrain / std::max<int64_t>(K, 1), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) widen_codes(to + n * K, code_row(q, n), K);
    });
  });
}

int64_t int8_room_bytes(int64_t K, DType dtype) {
  return std::max(kInt8StreamedRows * static_cast<int64_t>(sizeof(float)),
                  kBlockRows * static_cast<int64_t>(size_bytes(dtype))) *
         K;
}

void int8_matmul(const Tensor& y, const Tensor& x, const Int8Matrix& w, const Tensor& room, Stream& stream) {
  check_int8(w, "int8_matmul");
  const int64_t N = w.codes.dim(0), K = w.codes.dim(1), M = x.dim(0);
  INGOT_CHECK(x.rank() == 2 && x.dim(1) == K && y.rank() == 2 && y.dim(0) == M && y.dim(1) == N,
              "int8_matmul: x {} and y {} do not fit w {}", x.shape.to_string(), y.shape.to_string(),
              w.codes.shape.to_string());
  INGOT_CHECK(static_cast<int64_t>(room.bytes()) >= int8_room_bytes(K, x.dtype),
              "int8_matmul: {} bytes of room", room.bytes());
  Work work = traffic({y, x, w.codes, w.scales});
  work.flops = 2 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
  work.dtype = x.dtype;
  work.form = "nt";
  const OpSpan span(stream, "int8_matmul", work);
  if (span.plans() || M == 0) return;
  if (M > kInt8StreamedRows) {
    for (int64_t n = 0; n < N; n += kBlockRows)
      multiply_block(y, x, w, room, n, std::min(kBlockRows, N - n), stream);
    return;
  }
  auto* widened = static_cast<float*>(room.data);
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    for (int64_t m = 0; m < M; ++m) {
      const T* row = x.as<T>() + m * x.strides[0];
      vec::for_each(K, [&](auto load, auto store) { store(widened + m * K, load(row)); });
    }
  });
  with_dtype(y.dtype, __func__, [&]<typename Out>() { multiply_streamed<Out>(y, widened, K, w); });
}

void int8_embedding(const Tensor& out, const Tensor& tokens, const Int8Matrix& table, const Tensor& positions,
                    Stream& stream) {
  check_int8(table, "int8_embedding");
  const int64_t V = table.codes.dim(0), C = table.codes.dim(1), N = tokens.elements();
  check_tensor(out, out.dtype, {N, C}, "int8_embedding: out");
  if (positions) check_tensor(positions, out.dtype, {N, C}, "int8_embedding: positions");
  const WorkSpan span(stream, "int8_embedding", traffic({out, tokens, positions}));
  if (span.plans()) return;
  const int32_t* ids = tokens.as<int32_t>();
  with_dtype(out.dtype, __func__, [&]<typename T>() {
    const T* add = positions ? positions.as<T>() : nullptr;
    for (int64_t n = 0; n < N; ++n) {
      if (ids[n] < 0 || ids[n] >= V)
        fail(ErrorKind::kData, "int8_embedding: token {} at index {} is outside the vocabulary of {}", ids[n],
             n, V);
      widen_codes(out.as<T>() + n * C, code_row(table, ids[n]), C, add ? add + n * C : nullptr);
    }
  });
}

}  // namespace ingot
