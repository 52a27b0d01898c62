#include "ingot/ops/embedding.h"

#include <limits>

#include "ingot/ops/cuda/cuda_elementwise.h"

namespace ingot::cuda {
namespace {

// Checking tokens on a device would synchronise. A token outside the vocabulary therefore gives a row of
// NaN, which the run's guard detects, and no gradient.
template <int W, typename T>
struct Gather {
  T* out;
  const T *wte, *wpe;
  const int32_t* tokens;
  uint32_t C;
  int64_t first, rows, V, sequence, first_position;  // wte holds rows [first, first + rows) of V

  __device__ void operator()(int64_t i) const {
    const RowColumn at(i, C);
    const int64_t token = tokens[at.row];
    const bool is_here = token >= first && token < first + rows;
    Floats<W> v = is_here ? load<W>(wte + (token - first) * C + at.column) : Floats<W>{};
    if (token < 0 || token >= V) {
#pragma unroll
      for (int k = 0; k < W; ++k) v.at[k] = std::numeric_limits<float>::quiet_NaN();
    }
    if (wpe) {
      const Floats<W> position = load<W>(wpe + (at.row % sequence + first_position) * C + at.column);
#pragma unroll
      for (int k = 0; k < W; ++k) v.at[k] += position.at[k];
    }
    store(out + i, v);
  }
};

// d_wpe[first_position + t] += d_out of row t of every sequence, in the order of the sequences.
template <int W, typename T>
struct AddPositions {
  float* d_wpe;  // the row of first_position
  const T* d_out;
  uint32_t C;
  int64_t sequence, N;

  __device__ void operator()(int64_t i) const {
    Floats<W> sum{};
    for (int64_t k = i; k < N * C; k += sequence * C) {
      const Floats<W> d = load<W>(d_out + k);
#pragma unroll
      for (int j = 0; j < W; ++j) sum.at[j] += d.at[j];
    }
    const Floats<W> old = load<W>(d_wpe + i);
#pragma unroll
    for (int j = 0; j < W; ++j) sum.at[j] += old.at[j];
    store(d_wpe + i, sum);
  }
};

// Rows [first, first + count) of the vocabulary.
struct TableRows {
  int32_t first, count;
};

constexpr int kOwners = 264;  // number of blocks that the vocabulary is divided among
constexpr int kWarps = kThreads / kWarp;
constexpr int kBatch = 4 * kThreads;  // tokens scanned between two barriers

// Block (owner, column block) owns the table rows v with v % kOwners == owner, in kWarp * W columns; its
// warp w owns those with v / kOwners % kWarps == w. The block scans all tokens and lists its own in order,
// then each warp adds the listed rows that it owns. So one thread per column sums each row of d_wte in order
// of n. Memory traffic: d_out once, the tokens once per block (from the L2 cache), and the touched rows of
// d_wte. The first barrier of an iteration also waits for the readers of the previous list.
template <int W, typename T>
__global__ void __launch_bounds__(kThreads)
    add_tokens(float* d_wte, const T* d_out, const int32_t* tokens, int64_t N, TableRows table, int C) {
  __shared__ int32_t found[kBatch];
  __shared__ int of_warp[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int column = (static_cast<int>(blockIdx.y) * kWarp + lane) * W;
  for (int64_t begin = 0; begin < N; begin += kBatch) {
    // Each warp filters its kBatch / kWarps tokens, in order, for those that the block owns.
    int32_t kept[kBatch / kThreads];
    int count = 0;
#pragma unroll
    for (int k = 0; k < kBatch / kThreads; ++k) {
      const int64_t n = begin + (warp * (kBatch / kThreads) + k) * kWarp + lane;
      const int32_t row = n < N ? tokens[n] - table.first : -1;
      const bool is_own = row >= 0 && row < table.count && row % kOwners == static_cast<int>(blockIdx.x);
      const unsigned own = __ballot_sync(0xffffffffu, is_own);
      kept[k] = is_own ? count + __popc(own & ((1u << lane) - 1)) : -1;
      count += __popc(own);
    }
    if (lane == 0) of_warp[warp] = count;
    __syncthreads();
    int first = 0, total = 0;
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) first += of_warp[w];
      total += of_warp[w];
    }
#pragma unroll
    for (int k = 0; k < kBatch / kThreads; ++k)
      if (kept[k] >= 0) found[first + kept[k]] = (warp * (kBatch / kThreads) + k) * kWarp + lane;
    __syncthreads();
    for (int j = 0; j < total; ++j) {
      const int64_t n = begin + found[j];
      const int32_t own_row = tokens[n] - table.first;
      if (own_row / kOwners % kWarps != warp || column >= C) continue;
      float* row = d_wte + int64_t{own_row} * C + column;
      Floats<W> sum = load<W>(static_cast<const float*>(row));
      const Floats<W> d = load<W>(d_out + n * C + column);
#pragma unroll
      for (int i = 0; i < W; ++i) sum.at[i] += d.at[i];
      store(row, sum);
    }
  }
}

}  // namespace

void embedding_slice_forward(const Tensor& out, const Tensor& tokens, const TableSlice& wte,
                             const Tensor& wpe, int64_t T, int64_t first_position, Stream& stream) {
  const char* op = "embedding_forward";
  const int64_t N = out.dim(0), C = out.dim(1);
  const uint32_t length = row_length(N, C, op);
  with_dtype(out.dtype, op, [&](auto value) {
    using Value = decltype(value);
    with_width<Value>(allows_wide(C, out, wte.rows, wpe), [&](auto width) {
      constexpr int W = decltype(width)::value;
      const Gather<W, Value> f{out.as<Value>(),
                               wte.rows.as<Value>(),
                               optional<Value>(wpe),
                               tokens.as<int32_t>(),
                               length,
                               wte.first,
                               wte.rows.dim(0),
                               wte.V,
                               std::max<int64_t>(T, 1),
                               first_position};
      launch_elementwise<W>(N * C, op, stream, f);
    });
  });
}

void embedding_slice_backward(const TableSlice& d_wte, const Tensor& d_wpe, const Tensor& d_out,
                              const Tensor& tokens, int64_t T, int64_t first_position, Stream& stream) {
  const char* op = "embedding_backward";
  const int64_t N = d_out.dim(0), C = d_out.dim(1);
  const uint32_t length = row_length(N, C, op);
  const TableRows table{static_cast<int32_t>(d_wte.first), static_cast<int32_t>(d_wte.rows.dim(0))};
  with_dtype(d_out.dtype, op, [&](auto value) {
    using Value = decltype(value);
    with_width<Value>(allows_wide(C, d_wte.rows, d_wpe, d_out), [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch({stream, op, dim3(kOwners, blocks_for(C, kWarp * W)), dim3(kThreads)}, add_tokens<W, Value>,
             d_wte.rows.as<float>(), d_out.as<Value>(), tokens.as<int32_t>(), N, table, static_cast<int>(C));
      if (!d_wpe) return;
      const AddPositions<W, Value> f{d_wpe.as<float>() + first_position * C, d_out.as<Value>(), length, T, N};
      launch_elementwise<W>(std::min(T, N) * C, op, stream, f);
    });
  });
}

}  // namespace ingot::cuda
