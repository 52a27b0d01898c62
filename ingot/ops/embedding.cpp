#include "ingot/ops/embedding.h"

#include <algorithm>

#include "ingot/core/parallel.h"
#include "ingot/ops/dispatch.h"
#include "ingot/ops/vec.h"

namespace ingot {
namespace {

constexpr int64_t kGrainRows = 16;     // rows a thread takes at least, forward
constexpr int64_t kBlockColumns = 64;  // backward splits columns at multiples of this: whole cache lines

struct Positions {
  int64_t T, first;
  int64_t of(int64_t n) const { return n % T + first; }
};

void check_tokens(const Tensor& tokens, int64_t V, const char* op) {
  INGOT_CHECK(tokens.rank() == 1, "{}: tokens must be (N), got {}", op, tokens.shape.to_string());
  const int32_t* values = tokens.as<int32_t>();
  for (int64_t n = 0; n < tokens.elements(); ++n)
    if (values[n] < 0 || values[n] >= V) [[unlikely]]
      fail(ErrorKind::kData,
           "{}: token {} at index {} is outside the vocabulary of {}: was the text encoded with another "
           "tokenizer?",
           op, values[n], n, V);
}

void check_positions(int64_t positions, int64_t T, int64_t first_position, const char* op) {
  INGOT_CHECK(T >= 1 && first_position >= 0 && T + first_position <= positions,
              "{}: positions [{}, {}) must lie in [0, {}), the learned positions", op, first_position,
              first_position + T, positions);
}

// Rows come in no order that the hardware could foresee: asks for [row, row + n) ahead of its use.
template <typename T>
void prefetch(const T* row, int64_t n) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(row + i);
}

// Columns [begin, end) of both gradients.
template <typename T>
void add_columns(const Tensor& d_wte, const Tensor& d_wpe, const T* d_out, const int32_t* tokens, int64_t N,
                 Positions positions, int64_t begin, int64_t end) {
  const int64_t C = d_wte.dim(1);
  for (int64_t n = 0; n < N; ++n) {
    if (n + 1 < N) prefetch(d_wte.as<float>() + tokens[n + 1] * C + begin, end - begin);
    const T* d = d_out + n * C + begin;
    float* token_row = d_wte.as<float>() + tokens[n] * C + begin;
    vec::for_each(end - begin, [&](auto load, auto store) { store(token_row, load(token_row) + load(d)); });
    if (!d_wpe) continue;
    float* position_row = d_wpe.as<float>() + positions.of(n) * C + begin;
    vec::for_each(end - begin,
                  [&](auto load, auto store) { store(position_row, load(position_row) + load(d)); });
  }
}

}  // namespace

void embedding_forward(const Tensor& out, const Tensor& tokens, const Tensor& wte, const Tensor& wpe,
                       int64_t T, int64_t first_position, Stream& stream) {
  const Span span(stream.trace, "embedding");
  INGOT_CHECK(wte.rank() == 2, "embedding_forward: wte must be (V, C), got {}", wte.shape.to_string());
  const int64_t N = tokens.elements(), V = wte.dim(0), C = wte.dim(1);
  check_tensor(wte, out.dtype, {V, C}, "embedding_forward: wte");
  check_tensor(out, wte.dtype, {N, C}, "embedding_forward: out");
  check_tokens(tokens, V, "embedding_forward");
  if (wpe) {
    check_tensor(wpe, out.dtype, {wpe.dim(0), C}, "embedding_forward: wpe");
    check_positions(wpe.dim(0), T, first_position, "embedding_forward");
  }
  const Positions positions{T, first_position};
  INGOT_DISPATCH(out.dtype, Value, {
    parallel_for(N, kGrainRows, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        if (n + 1 < end) prefetch(wte.as<Value>() + tokens.as<int32_t>()[n + 1] * C, C);
        Value* row = out.as<Value>() + n * C;
        const Value* token_row = wte.as<Value>() + tokens.as<int32_t>()[n] * C;
        const Value* position_row = wpe ? wpe.as<Value>() + positions.of(n) * C : nullptr;
        vec::for_each(C, [&](auto load, auto store) {
          store(row, position_row ? load(token_row) + load(position_row) : load(token_row));
        });
      }
    });
  });
}

void embedding_backward(const Tensor& d_wte, const Tensor& d_wpe, const Tensor& d_out, const Tensor& tokens,
                        int64_t T, int64_t first_position, Stream& stream) {
  const Span span(stream.trace, "embedding");
  INGOT_CHECK(d_wte.rank() == 2, "embedding_backward: d_wte must be (V, C), got {}", d_wte.shape.to_string());
  const int64_t N = tokens.elements(), V = d_wte.dim(0), C = d_wte.dim(1);
  check_tensor(d_wte, DType::f32, {V, C}, "embedding_backward: d_wte");
  check_tensor(d_out, d_out.dtype, {N, C}, "embedding_backward: d_out");
  check_tokens(tokens, V, "embedding_backward");
  if (d_wpe) {
    check_tensor(d_wpe, DType::f32, {d_wpe.dim(0), C}, "embedding_backward: d_wpe");
    check_positions(d_wpe.dim(0), T, first_position, "embedding_backward");
  }
  const Positions positions{T, first_position};
  const int64_t blocks = (C + kBlockColumns - 1) / kBlockColumns;
  INGOT_DISPATCH(d_out.dtype, Value, {
    parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
      add_columns(d_wte, d_wpe, d_out.as<Value>(), tokens.as<int32_t>(), N, positions, begin * kBlockColumns,
                  std::min(end * kBlockColumns, C));
    });
  });
}

}  // namespace ingot
