#include "ingot/ops/embedding.h"

#include <limits>

#include "ingot/core/cuda/cuda_elementwise.h"

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
constexpr int kAhead = 8;             // rows of d_out that a warp loads at one time

__device__ __forceinline__ int lowest_bit(unsigned bits) {
#ifdef __CUDA_ARCH__
  return __ffs(static_cast<int>(bits)) - 1;
#else
  return __builtin_ctz(bits);
#endif
}

// The row of d_wte that a warp adds to. Its sum stays in registers until the warp turns to another row, so a
// token that is a large part of the batch costs no round trip to memory per occurrence.
template <int W>
struct HeldRow {
  float* d_wte;
  int C, column;
  int32_t row = -1;
  Floats<W> sum{};

  __device__ __forceinline__ float* place() const { return d_wte + int64_t{row} * C + column; }
  __device__ __forceinline__ void write() const {
    if (row >= 0 && column < C) store(place(), sum);
  }
  __device__ __forceinline__ void add(int32_t to, const Floats<W>& d) {
    if (column >= C) return;
    if (to != row) {
      write();
      row = to;
      sum = load<W>(static_cast<const float*>(place()));
    }
#pragma unroll
    for (int i = 0; i < W; ++i) sum.at[i] += d.at[i];
  }
};

// Adds the rows of d_out with the listed indices that the warp owns, in order. All lanes of a warp call it.
template <int W, typename T>
__device__ __forceinline__ void add_listed(HeldRow<W>& held, const T* d_out, const int32_t* tokens,
                                           const int32_t* found, int total, int32_t first_row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int j = 0; j < total; j += kWarp) {
    const int32_t n = j + lane < total ? found[j + lane] : -1;
    const int32_t row = n >= 0 ? tokens[n] - first_row : -1;
    unsigned own = __ballot_sync(0xffffffffu, row >= 0 && row / kOwners % kWarps == warp);
    while (own != 0) {
      int32_t rows[kAhead];
      Raw<T, W> d[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        rows[k] = -1;
        if (own == 0) continue;
        const int from = lowest_bit(own);
        own &= own - 1;
        rows[k] = __shfl_sync(0xffffffffu, row, from);
        const int64_t at = __shfl_sync(0xffffffffu, n, from);
        if (held.column < held.C) d[k] = load_raw<W>(d_out + at * held.C + held.column);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        if (rows[k] >= 0) held.add(rows[k], widened(d[k]));
    }
  }
}

// Block (owner, column block) owns the table rows v with v % kOwners == owner, in kWarp * W columns; its
// warp w owns those with v / kOwners % kWarps == w. The block scans all tokens and lists its own in order,
// then each warp adds the listed rows that it owns, with kAhead loads in flight. So one thread per column
// sums each row of d_wte in order of n. Memory traffic: d_out once, the tokens once per block (from the L2
// cache), and the touched rows of d_wte. The first barrier of an iteration also waits for the readers of
// the previous list.
template <int W, typename T>
__global__ void __launch_bounds__(kThreads)
    add_tokens(float* d_wte, const T* d_out, const int32_t* tokens, int64_t N, TableRows table, int C) {
  __shared__ int32_t found[kBatch];
  __shared__ int of_warp[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  HeldRow<W> held{d_wte, C, (static_cast<int>(blockIdx.y) * kWarp + lane) * W};
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
    add_listed<W>(held, d_out + begin * C, tokens + begin, found, total, table.first);
  }
  held.write();
}

}  // namespace

void embedding_forward(const Tensor& out, const Tensor& tokens, const TableSlice& wte, const Tensor& wpe,
                       int64_t T, int64_t first_position, Stream& stream) {
  const char* op = "embedding_forward";
  const int64_t N = out.dim(0), C = out.dim(1);
  const uint32_t length = row_length(N, C, op);
  with_dtype(out.dtype, op, [&]<typename Value>() {
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

void embedding_backward(const TableSlice& d_wte, const Tensor& d_wpe, const Tensor& d_out,
                        const Tensor& tokens, int64_t T, int64_t first_position, Stream& stream) {
  const char* op = "embedding_backward";
  const int64_t N = d_out.dim(0), C = d_out.dim(1);
  const uint32_t length = row_length(N, C, op);
  const TableRows table{static_cast<int32_t>(d_wte.first), static_cast<int32_t>(d_wte.rows.dim(0))};
  with_dtype(d_out.dtype, op, [&]<typename Value>() {
    with_width<Value>(allows_wide(C, d_wte.rows, d_wpe, d_out), [&](auto width) {
      constexpr int W = decltype(width)::value;
      const auto owners = static_cast<unsigned>(std::min<int64_t>(kOwners, std::max(table.count, 1)));
      launch({stream, op, dim3(owners, blocks_for(C, kWarp * W)), dim3(kThreads)}, add_tokens<W, Value>,
             d_wte.rows.as<float>(), d_out.as<Value>(), tokens.as<int32_t>(), N, table, static_cast<int>(C));
      if (!d_wpe) return;
      const AddPositions<W, Value> f{d_wpe.as<float>() + first_position * C, d_out.as<Value>(), length, T, N};
      launch_elementwise<W>(std::min(T, N) * C, op, stream, f);
    });
  });
}

}  // namespace ingot::cuda
