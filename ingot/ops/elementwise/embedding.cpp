#include "ingot/ops/embedding.h"

#include <algorithm>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/simd/vec.h"

namespace ingot {

namespace cuda {  // embedding.cu
decltype(ingot::embedding_forward) embedding_forward;
decltype(ingot::embedding_backward) embedding_backward;
}  // namespace cuda

namespace {

constexpr int64_t kGrainRows = 16;     // minimum number of rows per thread in forward
constexpr int64_t kBlockColumns = 64;  // backward splits columns at multiples of this: whole cache lines

struct Positions {
  int64_t T, first;
  int64_t of(int64_t n) const { return n % T + first; }
};

void check_tokens(const Tensor& tokens, int64_t V, const char* op) {
  INGOT_CHECK(tokens.rank() == 1, "{}: tokens must be (N), got {}", op, tokens.shape.to_string());
  const int32_t* values = tokens.as<int32_t>();
  if (tokens.device != Device::kCpu) return;
  for (int64_t n = 0; n < tokens.elements(); ++n)
    if (values[n] < 0 || values[n] >= V) [[unlikely]]
      fail(ErrorKind::kData,
           "{}: token {} at index {} is outside the vocabulary of {}: was the text encoded with another "
           "tokenizer?",
           op, values[n], n, V);
}

void check_slice(const TableSlice& table, const char* op) {
  INGOT_CHECK(table.rows.rank() == 2 && table.first >= 0 && table.first + table.rows.dim(0) <= table.V,
              "{}: wte must be (V, C) or rows of that, got {} of {} from {}", op,
              table.rows.shape.to_string(), table.V, table.first);
}

void check_positions(int64_t positions, int64_t T, int64_t first_position, const char* op) {
  INGOT_CHECK(T >= 1 && first_position >= 0 && T + first_position <= positions,
              "{}: positions [{}, {}) must lie in [0, {}), the learned positions", op, first_position,
              first_position + T, positions);
}

// Prefetches row[0, n): the hardware cannot predict the order of the rows.
template <typename T>
void prefetch(const T* row, int64_t n) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(row + i);
}

// Returns the row of a token, or null if it is on another rank.
template <typename T>
T* row_of(const TableSlice& table, int32_t token) {
  const int64_t row = token - table.first;
  return row >= 0 && row < table.rows.dim(0) ? table.rows.as<T>() + row * table.rows.dim(1) : nullptr;
}

// Adds a range of the columns of both gradients.
template <typename T>
void add_columns(const TableSlice& d_wte, const Tensor& d_wpe, const T* d_out, const int32_t* tokens,
                 int64_t N, Positions positions, Range columns) {
  const int64_t C = d_wte.rows.dim(1), begin = columns.begin, end = columns.end;
  float* next_row = N > 0 ? row_of<float>(d_wte, tokens[0]) : nullptr;
  for (int64_t n = 0; n < N; ++n) {
    float* token_row = next_row;
    if (n + 1 < N) next_row = row_of<float>(d_wte, tokens[n + 1]);
    if (next_row) prefetch(next_row + begin, end - begin);
    const T* d = d_out + n * C + begin;
    if (token_row) {
      float* part = token_row + begin;
      vec::for_each(end - begin, [&](auto load, auto store) { store(part, load(part) + load(d)); });
    }
    if (!d_wpe) continue;
    float* position_row = d_wpe.as<float>() + positions.of(n) * C + begin;
    vec::for_each(end - begin,
                  [&](auto load, auto store) { store(position_row, load(position_row) + load(d)); });
  }
}

// row = token_row + position_row; either may be null.
template <typename T>
void write_row(T* row, const T* token_row, const T* position_row, int64_t C) {
  if (token_row && position_row)
    vec::for_each(C, [&](auto load, auto store) { store(row, load(token_row) + load(position_row)); });
  else if (token_row || position_row)
    std::copy_n(token_row ? token_row : position_row, C, row);
  else
    std::fill_n(row, C, T(0.0f));
}

}  // namespace

void embedding_forward(const Tensor& out, const Tensor& tokens, const TableSlice& wte, const Tensor& wpe,
                       int64_t T, int64_t first_position, Stream& stream) {
  const OpSpan span(stream, "embedding", traffic({out, out, tokens}));
  if (span.plans()) return;
  check_slice(wte, "embedding_forward");
  const int64_t N = tokens.elements(), C = wte.rows.dim(1);
  check_tensor(wte.rows, out.dtype, wte.rows.shape, "embedding_forward: wte");
  check_tensor(out, out.dtype, {N, C}, "embedding_forward: out");
  check_tokens(tokens, wte.V, "embedding_forward");
  if (wpe) {
    check_tensor(wpe, out.dtype, {wpe.dim(0), C}, "embedding_forward: wpe");
    check_positions(wpe.dim(0), T, first_position, "embedding_forward");
  }
  if constexpr (kHasCuda) {
    if (out.device == Device::kCuda)
      return cuda::embedding_forward(out, tokens, wte, wpe, T, first_position, stream);
  }
  const Positions positions{T, first_position};
  with_dtype(out.dtype, __func__, [&]<typename Value>() {
    parallel_for(N, kGrainRows, [&](int64_t begin, int64_t end) {
      const Value* next_row = row_of<Value>(wte, tokens.as<int32_t>()[begin]);
      for (int64_t n = begin; n < end; ++n) {
        const Value* token_row = next_row;
        if (n + 1 < end) next_row = row_of<Value>(wte, tokens.as<int32_t>()[n + 1]);
        if (next_row) prefetch(next_row, C);
        const Value* position_row = wpe ? wpe.as<Value>() + positions.of(n) * C : nullptr;
        write_row(out.as<Value>() + n * C, token_row, position_row, C);
      }
    });
  });
}

void embedding_backward(const TableSlice& d_wte, const Tensor& d_wpe, const Tensor& d_out,
                        const Tensor& tokens, int64_t T, int64_t first_position, Stream& stream) {
  const OpSpan span(stream, "embedding", traffic({d_out, d_out, d_out, tokens}));
  if (span.plans()) return;
  check_slice(d_wte, "embedding_backward");
  const int64_t N = tokens.elements(), C = d_wte.rows.dim(1);
  check_tensor(d_wte.rows, DType::f32, d_wte.rows.shape, "embedding_backward: d_wte");
  check_tensor(d_out, d_out.dtype, {N, C}, "embedding_backward: d_out");
  check_tokens(tokens, d_wte.V, "embedding_backward");
  if (d_wpe) {
    check_tensor(d_wpe, DType::f32, {d_wpe.dim(0), C}, "embedding_backward: d_wpe");
    check_positions(d_wpe.dim(0), T, first_position, "embedding_backward");
  }
  if constexpr (kHasCuda) {
    if (d_out.device == Device::kCuda)
      return cuda::embedding_backward(d_wte, d_wpe, d_out, tokens, T, first_position, stream);
  }
  const Positions positions{T, first_position};
  const int64_t blocks = (C + kBlockColumns - 1) / kBlockColumns;
  with_dtype(d_out.dtype, __func__, [&]<typename Value>() {
    parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
      add_columns(d_wte, d_wpe, d_out.as<Value>(), tokens.as<int32_t>(), N, positions,
                  {begin * kBlockColumns, std::min(end * kBlockColumns, C)});
    });
  });
}

}  // namespace ingot
