// Attention without tensor cores, in f32 arithmetic for every dtype. It supports every shape and is the
// reference for faster kernels. A group of G lanes owns a row (a query, or a key in the pass for dk and
// dv); each lane holds 32 of its dims in registers. The rows of the other side stream through tiles in
// shared memory. No buffer of (T,S) elements exists, and every sum has a fixed order, without atomics.
#include "ingot/ops/attention.h"

#include <limits>

#include "ingot/core/cuda/cuda_elementwise.h"
#include "ingot/ops/attention/head_view.h"
#include "ingot/ops/dropout.h"

namespace ingot::cuda {
namespace {

constexpr int kBlock = 128;       // threads per block
constexpr int kQuads = 8;         // quads of 4 dims per lane
constexpr int kTileQuads = 1024;  // 16 KiB per tile
constexpr int kChunk = 8;         // keys between two updates of the running maximum
constexpr float kLowest = std::numeric_limits<float>::lowest();

using Quad = Raw<float, 4>;

template <typename T>
struct Problem {
  AttentionShape shape;
  HeadView<T> q, k, v;
  float scale;
  bool is_causal, is_wide;
  int64_t window;            // 0: none
  const int32_t* doc_start;  // (B,T), or null
  DropoutRule drop;          // threshold 0 means no dropout
  RandomKey key;
  int64_t first_row, first_head, all_heads;
  const int64_t* place;  // where dropout is (ops/dropout.h); null if the arguments say it

  // Query t of batch row b sees keys [first_key, end_key).
  __device__ __forceinline__ int64_t first_key(int64_t b, int64_t t) const {
    const int64_t document = doc_start ? doc_start[b * shape.T + t] : 0;
    const int64_t first = window > 0 ? t + (shape.S - shape.T) - window + 1 : 0;
    return first > document ? first : document;
  }
  __device__ __forceinline__ int64_t end_key(int64_t t) const {
    return is_causal ? t + (shape.S - shape.T) + 1 : shape.S;
  }
  __device__ __forceinline__ float keep(int64_t b, int64_t h, int64_t t, int64_t s) const {
    if (drop.threshold == 0) return 1.0f;
    const int64_t padded_T = (shape.T + 3) / 4 * 4;
    RandomKey at = key;
    int64_t row = first_row + b;
    if (place) {
      at.step = static_cast<uint64_t>(place[kPlaceStep]);
      row += place[kPlaceRow];
    }
    const int64_t index = ((row * all_heads + first_head + h) * shape.S + s) * padded_T + t;
    return random_word(at, static_cast<uint64_t>(index)) < drop.threshold ? 0.0f : drop.scale;
  }
};

// Returns dims [e, e + 4) of a row, with 0 beyond D.
template <typename T>
__device__ __forceinline__ Quad load_quad(const T* row, int e, int D, bool is_wide) {
  Quad quad;
  if (is_wide && e < D) {
    const Floats<4> values = load<4>(row + e);
#pragma unroll
    for (int i = 0; i < 4; ++i) quad.at[i] = values.at[i];
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) quad.at[i] = e + i < D ? static_cast<float>(row[e + i]) : 0.0f;
  }
  return quad;
}

// The dims of a row that a lane holds: quad i of lane g is the row's quad i * G + g.
template <int G>
struct LaneRow {
  Quad quad[kQuads];

  template <typename T>
  __device__ __forceinline__ void load(const T* row, int g, int D, bool is_wide) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) quad[i] = load_quad(row, (i * G + g) * 4, D, is_wide);
  }
  template <typename T>
  __device__ __forceinline__ void store(T* row, int g, int D, float factor) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if ((i * G + g) * 4 + k < D) row[(i * G + g) * 4 + k] = T(quad[i].at[k] * factor);
  }
  // Returns, in every lane of the group, the dot product with a row in shared memory.
  __device__ __forceinline__ float dot(const Quad* row, int g) const {
    float sum[4] = {};
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const Quad other = row[i * G + g];
#pragma unroll
      for (int k = 0; k < 4; ++k) sum[k] += quad[i].at[k] * other.at[k];
    }
    return group_total((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
  __device__ __forceinline__ float dot(const LaneRow& other) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k) sum += quad[i].at[k] * other.quad[i].at[k];
    return group_total(sum);
  }
  __device__ __forceinline__ void add(float factor, const Quad* row, int g) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const Quad other = row[i * G + g];
#pragma unroll
      for (int k = 0; k < 4; ++k) quad[i].at[k] += factor * other.at[k];
    }
  }
  __device__ __forceinline__ void scale(float factor) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k) quad[i].at[k] *= factor;
  }

 private:
  static __device__ __forceinline__ float group_total(float sum) {
#pragma unroll
    for (int mask = G / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    return sum;
  }
};

// Number of rows of a block, and of a tile.
template <int G>
constexpr int kRows = kBlock / G;
static_assert(kRows<1> * kQuads == kTileQuads);

// Returns how many rows of the tile that begins at `first` come before row `end`.
template <int G>
__device__ __forceinline__ int rows_before(int64_t end, int64_t first) {
  return end - first < kRows<G> ? static_cast<int>(end - first) : kRows<G>;
}

// Loads rows [first, first + kRows) of batch row b and head h; rows from `end` on are 0.
template <int G, typename T>
__device__ __forceinline__ void load_tile(Quad* tile, const HeadView<T>& from, int64_t b, int64_t h,
                                          int64_t first, int64_t end, const Problem<T>& a) {
  constexpr int kRowQuads = kQuads * G;
  const int D = static_cast<int>(a.shape.D);
#pragma unroll
  for (int i = 0; i < kTileQuads / kBlock; ++i) {
    const int place = i * kBlock + static_cast<int>(threadIdx.x), row = place / kRowQuads;
    tile[place] = first + row < end
                      ? load_quad(from.at(b, first + row, h), place % kRowQuads * 4, D, a.is_wide)
                      : Quad{};
  }
}

// Computes out and lse. Block (x, y): queries [y kRows, (y + 1) kRows) of batch row and head x, of which
// there may be more than the 65535 blocks of y.
template <int G, typename T>
__global__ void __launch_bounds__(kBlock) forward(Problem<T> a, HeadView<T> out, float* lse) {
  __shared__ Quad k_tile[kTileQuads], v_tile[kTileQuads];
  constexpr int kRowQuads = kQuads * G;
  const auto [B, T_, S, H, K, D64] = a.shape;
  const int D = static_cast<int>(D64), g = static_cast<int>(threadIdx.x) % G;
  const int64_t b = blockIdx.x / H, h = blockIdx.x % H, kv = h / (H / K);
  const int64_t first_t = int64_t{blockIdx.y} * kRows<G>, t = first_t + threadIdx.x / G;
  const bool is_row = t < T_;
  const int64_t first = is_row ? a.first_key(b, t) : 0, end = is_row ? a.end_key(t) : 0;
  const int64_t last_t = first_t + kRows<G> <= T_ ? first_t + kRows<G> - 1 : T_ - 1;
  LaneRow<G> q{}, sum{};
  if (is_row) q.load(a.q.at(b, t, h), g, D, a.is_wide);
  float top = kLowest, total = 0;
  for (int64_t tile = a.first_key(b, first_t) / kRows<G> * kRows<G>; tile < a.end_key(last_t);
       tile += kRows<G>) {
    __syncthreads();
    load_tile<G>(k_tile, a.k, b, kv, tile, S, a);
    load_tile<G>(v_tile, a.v, b, kv, tile, S, a);
    __syncthreads();
    const int used = rows_before<G>(a.end_key(last_t), tile);
    for (int chunk = 0; chunk < used; chunk += kChunk) {
      float score[kChunk], new_top = top;
      bool is_visible[kChunk];
#pragma unroll
      for (int j = 0; j < kChunk; ++j) {
        const int64_t s = tile + chunk + j;
        is_visible[j] = s >= first && s < end;
        score[j] = q.dot(k_tile + (chunk + j) * kRowQuads, g) * a.scale;
        if (is_visible[j] && score[j] > new_top) new_top = score[j];
      }
      const float correction = std::exp(top - new_top);
      top = new_top;
      total *= correction;
      sum.scale(correction);
#pragma unroll
      for (int j = 0; j < kChunk; ++j) {
        if (!is_visible[j]) continue;
        const float p = std::exp(score[j] - top);
        total += p;
        sum.add(p * a.keep(b, h, t, tile + chunk + j), v_tile + (chunk + j) * kRowQuads, g);
      }
    }
  }
  if (!is_row) return;
  sum.store(out.at(b, t, h), g, D, 1.0f / total);
  if (lse && g == 0) lse[(b * H + h) * T_ + t] = top + std::log(total);
}

template <typename T>
struct Gradients {
  HeadView<T> dq, dk, dv, d_out, out;
  const float* lse;
  float* delta;  // (B,H,T): sum of out * d_out
};

// Computes dq and delta. Blocks are as in forward.
template <int G, typename T>
__global__ void __launch_bounds__(kBlock) backward_q(Problem<T> a, Gradients<T> d) {
  __shared__ Quad k_tile[kTileQuads], v_tile[kTileQuads];
  constexpr int kRowQuads = kQuads * G;
  const auto [B, T_, S, H, K, D64] = a.shape;
  const int D = static_cast<int>(D64), g = static_cast<int>(threadIdx.x) % G;
  const int64_t b = blockIdx.x / H, h = blockIdx.x % H, kv = h / (H / K);
  const int64_t first_t = int64_t{blockIdx.y} * kRows<G>, t = first_t + threadIdx.x / G;
  const bool is_row = t < T_;
  const int64_t first = is_row ? a.first_key(b, t) : 0, end = is_row ? a.end_key(t) : 0;
  const int64_t last_t = first_t + kRows<G> <= T_ ? first_t + kRows<G> - 1 : T_ - 1;
  LaneRow<G> q{}, d_out{}, dq{};
  if (is_row) {
    dq.load(d.out.at(b, t, h), g, D, a.is_wide);
    q.load(a.q.at(b, t, h), g, D, a.is_wide);
    d_out.load(d.d_out.at(b, t, h), g, D, a.is_wide);
  }
  const float delta = dq.dot(d_out), lse = is_row ? d.lse[(b * H + h) * T_ + t] : 0.0f;
  if (is_row && g == 0) d.delta[(b * H + h) * T_ + t] = delta;
  dq.scale(0);
  for (int64_t tile = a.first_key(b, first_t) / kRows<G> * kRows<G>; tile < a.end_key(last_t);
       tile += kRows<G>) {
    __syncthreads();
    load_tile<G>(k_tile, a.k, b, kv, tile, S, a);
    load_tile<G>(v_tile, a.v, b, kv, tile, S, a);
    __syncthreads();
    const int used = rows_before<G>(a.end_key(last_t), tile);
    for (int j = 0; j < used; ++j) {
      const int64_t s = tile + j;
      const float score = q.dot(k_tile + j * kRowQuads, g) * a.scale;
      const float dp = d_out.dot(v_tile + j * kRowQuads, g);
      if (s < first || s >= end) continue;
      const float ds = std::exp(score - lse) * (dp * a.keep(b, h, t, s) - delta) * a.scale;
      dq.add(ds, k_tile + j * kRowQuads, g);
    }
  }
  if (is_row) dq.store(d.dq.at(b, t, h), g, D, 1.0f);
}

// Computes dk and dv. Block (x, y): keys [x kRows, (x + 1) kRows) of batch row and kv head y. The block
// processes the queries of all heads that read this kv head, head after head, in order. REQUIRES:
// backward_q's delta.
template <int G, typename T>
__global__ void __launch_bounds__(kBlock) backward_kv(Problem<T> a, Gradients<T> d) {
  __shared__ Quad q_tile[kTileQuads], d_out_tile[kTileQuads];
  __shared__ float lse[kBlock], delta[kBlock];
  __shared__ int32_t start[kBlock];
  constexpr int kRowQuads = kQuads * G;
  const auto [B, T_, S, H, K, D64] = a.shape;
  const int D = static_cast<int>(D64), g = static_cast<int>(threadIdx.x) % G;
  const int64_t b = blockIdx.x / K, kv = blockIdx.x % K;
  const int64_t first_s = int64_t{blockIdx.y} * kRows<G>, s = first_s + threadIdx.x / G;
  const bool is_row = s < S;
  LaneRow<G> k{}, v{}, dk{}, dv{};
  if (is_row) {
    k.load(a.k.at(b, s, kv), g, D, a.is_wide);
    v.load(a.v.at(b, s, kv), g, D, a.is_wide);
  }
  const int64_t earliest = a.is_causal && first_s > S - T_ ? first_s - (S - T_) : 0;
  const int64_t last =
      a.window > 0 ? first_s + kRows<G> + a.window - 1 - (S - T_) : T_;  // with a window, none from
  const int64_t end_t = last < T_ ? last : T_;                           // here on sees the keys
  for (int64_t h = kv * (H / K); h < (kv + 1) * (H / K); ++h)
    for (int64_t tile = earliest / kRows<G> * kRows<G>; tile < end_t; tile += kRows<G>) {
      __syncthreads();
      load_tile<G>(q_tile, a.q, b, h, tile, T_, a);
      load_tile<G>(d_out_tile, d.d_out, b, h, tile, T_, a);
      if (threadIdx.x < kRows<G> && tile + threadIdx.x < T_) {
        const int64_t t = tile + threadIdx.x;
        lse[threadIdx.x] = d.lse[(b * H + h) * T_ + t];
        delta[threadIdx.x] = d.delta[(b * H + h) * T_ + t];
        start[threadIdx.x] = static_cast<int32_t>(a.first_key(b, t));
      }
      __syncthreads();
      const int used = rows_before<G>(end_t, tile);
      for (int j = 0; j < used; ++j) {
        const int64_t t = tile + j;
        const float score = k.dot(q_tile + j * kRowQuads, g) * a.scale;
        const float dp = v.dot(d_out_tile + j * kRowQuads, g);
        if (!is_row || s < start[j] || s >= a.end_key(t)) continue;
        const float p = std::exp(score - lse[j]), keep = a.keep(b, h, t, s);
        dv.add(p * keep, d_out_tile + j * kRowQuads, g);
        dk.add(p * (dp * keep - delta[j]) * a.scale, q_tile + j * kRowQuads, g);
      }
    }
  if (!is_row) return;
  dk.store(d.dk.at(b, s, kv), g, D, 1.0f);
  dv.store(d.dv.at(b, s, kv), g, D, 1.0f);
}

// Calls f with the number of lanes that hold a row of D dims.
template <typename F>
void with_lanes(int64_t D, const char* op, F&& f) {
  if (D <= 32) return f(std::integral_constant<int, 1>{});
  if (D <= 64) return f(std::integral_constant<int, 2>{});
  if (D <= 128) return f(std::integral_constant<int, 4>{});
  if (D <= 256) return f(std::integral_constant<int, 8>{});
  fail(ErrorKind::kInternal, "{}: heads of at most 256 dims on a CUDA device, got {}", op, D);
}

template <typename... Tensors>
bool allows_quads(const Tensors&... views) {
  const auto fits = [](const Tensor& t) {
    return is_aligned(t.data) && t.dim(3) % 4 == 0 && t.strides[0] % 4 == 0 && t.strides[1] % 4 == 0 &&
           t.strides[2] % 4 == 0;
  };
  return (fits(views) && ...);
}

template <typename T>
Problem<T> make_problem(const AttentionOperands& t, const AttentionConfig& config, bool is_wide) {
  const Tensor &q = t.q, &k = t.k;
  return {{q.dim(0), q.dim(1), k.dim(1), q.dim(2), k.dim(2), q.dim(3)},
          HeadView<T>(q),
          HeadView<T>(k),
          HeadView<T>(t.v),
          config.scale,
          config.is_causal,
          is_wide,
          config.window,
          optional<int32_t>(t.doc_start),
          DropoutRule(static_cast<double>(config.dropout.p)),
          config.dropout.key,
          config.dropout.first_row,
          config.dropout.first_head,
          config.dropout.all_heads > 0 ? config.dropout.all_heads : q.dim(2),
          optional<int64_t>(config.dropout.place)};
}

}  // namespace

void attention_forward(const AttentionOperands& t, const AttentionConfig& config, const Tensor& /*scratch*/,
                       Stream& stream) {
  const char* op = "attention_forward";
  const Tensor& q = t.q;
  with_dtype(q.dtype, op, [&]<typename T>() {
    const auto problem = make_problem<T>(t, config, allows_quads(q, t.k, t.v));
    with_lanes(q.dim(3), op, [&](auto lanes) {
      constexpr int G = decltype(lanes)::value;
      const dim3 grid(blocks_for(q.dim(0) * q.dim(2), 1), blocks_for(q.dim(1), kRows<G>));
      launch({stream, op, grid, dim3(kBlock)}, forward<G, T>, problem, HeadView<T>(t.out),
             optional<float>(t.lse));
    });
  });
}

void attention_backward(const AttentionGradients& d, const AttentionOperands& t,
                        const AttentionConfig& config, const Tensor& scratch, Stream& stream) {
  const char* op = "attention_backward";
  const Tensor &q = t.q, &k = t.k;
  const int64_t wanted = q.dim(0) * q.dim(1) * q.dim(2);
  INGOT_CHECK(scratch && scratch.dtype == DType::f32 && scratch.elements() >= wanted,
              "{}: scratch on the device must be f32 of at least B*H*T = {} elements, got {} {}", op, wanted,
              name(scratch.dtype), scratch.shape.to_string());
  with_dtype(q.dtype, op, [&]<typename T>() {
    const auto problem = make_problem<T>(t, config, allows_quads(q, k, t.v, d.d_out, t.out));
    const Gradients<T> gradients{HeadView<T>(d.dq),    HeadView<T>(d.dk),  HeadView<T>(d.dv),
                                 HeadView<T>(d.d_out), HeadView<T>(t.out), t.lse.as<float>(),
                                 scratch.as<float>()};
    with_lanes(q.dim(3), op, [&](auto lanes) {
      constexpr int G = decltype(lanes)::value;
      const dim3 queries(blocks_for(q.dim(0) * q.dim(2), 1), blocks_for(q.dim(1), kRows<G>));
      const dim3 keys(blocks_for(k.dim(0) * k.dim(2), 1), blocks_for(k.dim(1), kRows<G>));
      launch({stream, op, queries, dim3(kBlock)}, backward_q<G, T>, problem, gradients);
      launch({stream, op, keys, dim3(kBlock)}, backward_kv<G, T>, problem, gradients);
    });
  });
}

}  // namespace ingot::cuda
