// Matrices of 8-bit integers, from which generation on the CPU reads half the bytes of bf16.
//
//   w[n, k] = s[n, k / 64] q[n, k]      q in [-127, 127], s = bf16(max |w| of the group / 127)
//
// Quantisation is symmetric and by groups of 64 columns of a row, so |w - s q| <= s / 2: bf16 rounds s down
// by at most 1/256, and 127 * 256 / 255 still rounds to 127. A group whose values are all below 2^-100
// becomes zero. (Q8_0 of GGUF has groups of 32 and f16 scales.)
#pragma once

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

inline constexpr int64_t kInt8Group = 64;        // columns that share a scale
inline constexpr int64_t kInt8StreamedRows = 8;  // products of more rows are faster by widened blocks

// A view of such a matrix in host memory.
struct Int8Matrix {
  Tensor codes;   // (N, K) u8, the bytes of q as int8_t
  Tensor scales;  // (N, ceil(K / 64)) bf16

  Int8Matrix rows(int64_t begin, int64_t end) const {
    return {codes.rows(begin, end), scales.rows(begin, end)};
  }
};

Int8Matrix alloc_int8(Arena& arena, int64_t N, int64_t K);

// q = w (N, K) f32, on the calling thread. REQUIRES: w is finite.
void int8_quantize(const Int8Matrix& q, const Tensor& w);
// w (N, K) = q, rounded to w's dtype: f32, bf16 or f16.
void int8_dequantize(const Tensor& w, const Int8Matrix& q, Stream& stream);

// y (M, N) = x (M, K) · wᵀ, summed in f32. x: f32, bf16 or f16; y: x's dtype or f32. Rows of x and y may be
// strided. Up to kInt8StreamedRows rows are multiplied by the exact values of w while its codes stream from
// memory, and a row's sums depend on no other row. For more rows, 256 rows of w at a time are rounded to x's
// dtype and multiplied by ops/matmul.h. REQUIRES: room is contiguous, with at least int8_room_bytes(K,
// x.dtype) bytes.
void int8_matmul(const Tensor& y, const Tensor& x, const Int8Matrix& w, const Tensor& room, Stream& stream);
int64_t int8_room_bytes(int64_t K, DType dtype);

// out (N, C) = rows `tokens` (N) i32 of the table (V, C), plus positions (N, C) of out's dtype unless it is
// absent. A token outside [0, V) is a kData error that names the token and its index.
void int8_embedding(const Tensor& out, const Tensor& tokens, const Int8Matrix& table, const Tensor& positions,
                    Stream& stream);

}  // namespace ingot
