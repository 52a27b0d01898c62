// Attention of single tokens over a cache (Flash-Decoding, Dao et al. 2023), and the copies into the cache.
#include "ingot/ops/kv_cache.h"

#include <limits>

#include "ingot/core/cuda/cuda_kernel.h"
#include "ingot/ops/attention/head_view.h"

namespace ingot::cuda {
namespace {

constexpr int kDecodeThreads = 128;
constexpr int kHeads = 4;      // query heads of one kv head that a block computes together
constexpr int kLaneDims = 8;   // most dims of a head that a lane holds
constexpr int kKeysAhead = 2;  // keys that a lane loads before it uses the first
constexpr int64_t kMaxDims = 256;
constexpr float kNoScore = std::numeric_limits<float>::lowest();

// The slice of a token's keys, and its token.
struct Slice {
  int64_t slot, begin, end;  // positions [begin, end)
};

template <typename T>
struct Decode {
  HeadView<T> q, out;
  const T *k, *v;         // (slots, positions, K, D)
  const int32_t* places;  // (N)
  int64_t N, positions, window;
  int H, K, D;
  int lanes;   // that hold a head: a power of two
  int slices;  // as many as the longest sequence has
  float scale;
  float *tops, *totals, *sums;  // (N, H, slices), (N, H, slices), (N, H, slices, D); unused with one slice

  // The positions that token n sees; none for padding.
  __device__ __forceinline__ Slice keys(int64_t n) const {
    const int64_t place = places[n];
    if (place < 0) return {0, 0, 0};
    const int64_t end = place % positions + 1;
    return {place / positions, window > 0 && end > window ? end - window : 0, end};
  }
  __device__ __forceinline__ const T* row(const T* cache, int64_t slot, int64_t s, int kv) const {
    return cache + ((slot * positions + s) * K + kv) * D;
  }
};

// The dims of a head that lane g of `lanes` holds: pack p is elements [(p * lanes + g) * W, + W), 0 beyond D.
template <int W, int P>
struct LaneDims {
  Floats<W> pack[P];

  template <typename T>
  __device__ __forceinline__ void load(const T* row, int g, int lanes, int D) {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = (p * lanes + g) * W;
      pack[p] = i < D ? cuda::load<W>(row + i) : Floats<W>{};
    }
  }
  __device__ __forceinline__ float dot(const LaneDims& other) const {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < W; ++i) sum += pack[p].at[i] * other.pack[p].at[i];
    return sum;
  }
  // this = this * factor + other * weight
  __device__ __forceinline__ void add(float factor, float weight, const LaneDims& other) {
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < W; ++i) pack[p].at[i] = pack[p].at[i] * factor + other.pack[p].at[i] * weight;
  }
};

// The running softmax of one query head in one group of lanes.
template <int W, int P>
struct Running {
  LaneDims<W, P> q, sum;
  float top, total;

  __device__ __forceinline__ void add(float score, const LaneDims<W, P>& v) {
    const float new_top = score > top ? score : top;
    const float factor = std::exp(top - new_top), weight = std::exp(score - new_top);
    top = new_top;
    total = total * factor + weight;
    sum.add(factor, weight, v);
  }
};

// GroupResults holds the results of the groups of lanes of a block.
struct GroupResults {
  float top[kHeads][kDecodeThreads], total[kHeads][kDecodeThreads];  // by group
  float sum[kHeads][kDecodeThreads * kLaneDims];                     // by group and dim
};

// Merges the results of the groups in order and writes them: to out, or as a slice's result.
template <typename T>
__device__ void merge_groups(const Decode<T>& a, const GroupResults& from, int64_t n, int first_head,
                             int heads, int groups, int slice) {
  const int stride = kDecodeThreads * kLaneDims / groups;
  for (int i = static_cast<int>(threadIdx.x); i < heads * a.D; i += kDecodeThreads) {
    const int h = i / a.D, d = i % a.D;
    float top = kNoScore, total = 0, sum = 0;
    for (int group = 0; group < groups; ++group) top = from.top[h][group] > top ? from.top[h][group] : top;
    for (int group = 0; group < groups; ++group) {
      const float factor = std::exp(from.top[h][group] - top);
      total += from.total[h][group] * factor;
      sum += from.sum[h][group * stride + d] * factor;
    }
    if (a.slices == 1) {
      a.out.at(0, n, first_head + h)[d] = T(sum / total);
      continue;
    }
    const int64_t place = (n * a.H + first_head + h) * a.slices + slice;
    a.sums[place * a.D + d] = sum;
    if (d == 0) a.tops[place] = top, a.totals[place] = total;
  }
}

// Block (x, y): token, kv head and kHeads of its query heads x; positions [y kDecodeSlice, (y + 1)
// kDecodeSlice). A group of `lanes` threads holds a head and takes every `groups`-th key. K and V are read
// once per kHeads query heads.
template <int W, int P, typename T>
__global__ void __launch_bounds__(kDecodeThreads) decode(Decode<T> a) {
  __shared__ GroupResults results;
  const int per_kv = a.H / a.K, quads = (per_kv + kHeads - 1) / kHeads, x = static_cast<int>(blockIdx.x);
  const int64_t n = x / (a.K * quads);
  const int kv = x / quads % a.K, first_head = kv * per_kv + x % quads * kHeads;
  const int heads = (kv + 1) * per_kv - first_head < kHeads ? (kv + 1) * per_kv - first_head : kHeads;
  const Slice keys = a.keys(n);
  if (keys.end == 0) {  // padding
    if (a.slices > 1) return;
    for (int i = static_cast<int>(threadIdx.x); i < heads * a.D; i += kDecodeThreads)
      a.out.at(0, n, first_head + i / a.D)[i % a.D] = T(0.0f);
    return;
  }
  const int64_t y = int64_t{blockIdx.y} * kDecodeSlice;
  const int64_t begin = y > keys.begin ? y : keys.begin;
  const int64_t end = y + kDecodeSlice < keys.end ? y + kDecodeSlice : keys.end;
  if (begin >= end) return;
  const int g = static_cast<int>(threadIdx.x) % a.lanes, group = static_cast<int>(threadIdx.x) / a.lanes;
  const int groups = kDecodeThreads / a.lanes;
  Running<W, P> running[kHeads] = {};
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    running[h].top = kNoScore;
    if (h < heads) running[h].q.load(a.q.at(0, n, first_head + h), g, a.lanes, a.D);
  }
  for (int64_t first = begin; first < end; first += groups * kKeysAhead) {
    LaneDims<W, P> k[kKeysAhead] = {}, v[kKeysAhead] = {};
#pragma unroll
    for (int j = 0; j < kKeysAhead; ++j) {
      const int64_t s = first + j * groups + group;
      if (s >= end) continue;
      k[j].load(a.row(a.k, keys.slot, s, kv), g, a.lanes, a.D);
      v[j].load(a.row(a.v, keys.slot, s, kv), g, a.lanes, a.D);
    }
#pragma unroll
    for (int j = 0; j < kKeysAhead; ++j)
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        if (h >= heads) continue;
        float score = running[h].q.dot(k[j]);
        for (int mask = a.lanes / 2; mask > 0; mask /= 2) score += __shfl_xor_sync(0xffffffffu, score, mask);
        if (first + j * groups + group < end) running[h].add(score * a.scale, v[j]);
      }
  }
  const int stride = kDecodeThreads * kLaneDims / groups;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (g == 0) results.top[h][group] = running[h].top, results.total[h][group] = running[h].total;
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < W; ++i)
        results.sum[h][group * stride + (p * a.lanes + g) * W + i] = running[h].sum.pack[p].at[i];
  }
  __syncthreads();
  merge_groups(a, results, n, first_head, heads, groups, static_cast<int>(blockIdx.y));
}

// Merges the slices of a token's head in order. A block owns one of them; a thread owns every blockDim.x-th
// dim.
template <typename T>
__global__ void __launch_bounds__(kDecodeThreads) merge_slices(Decode<T> a) {
  const int64_t n = blockIdx.x / a.H;
  const int h = static_cast<int>(blockIdx.x % a.H);
  const Slice keys = a.keys(n);
  const int64_t first = keys.begin / kDecodeSlice, end = (keys.end + kDecodeSlice - 1) / kDecodeSlice;
  const int64_t place = int64_t{blockIdx.x} * a.slices;
  T* out = a.out.at(0, n, h);
  for (int d = static_cast<int>(threadIdx.x); d < a.D; d += static_cast<int>(blockDim.x)) {
    float top = kNoScore, total = 0, sum = 0;
    for (int64_t i = first; i < end; ++i) top = a.tops[place + i] > top ? a.tops[place + i] : top;
    for (int64_t i = first; i < end; ++i) {
      const float factor = std::exp(a.tops[place + i] - top);
      total += a.totals[place + i] * factor;
      sum += a.sums[(place + i) * a.D + d] * factor;
    }
    out[d] = T(keys.end == 0 ? 0.0f : sum / total);
  }
}

// Block n copies token n's keys and values, W elements per thread at a time.
template <int W, typename T>
__global__ void __launch_bounds__(kDecodeThreads)
    append(T* k_cache, T* v_cache, HeadView<T> k, HeadView<T> v, const int32_t* places, int K, int D) {
  const int64_t n = blockIdx.x, place = places[n];
  if (place < 0) return;
  const int packs = D / W;
  for (int i = static_cast<int>(threadIdx.x); i < K * packs; i += kDecodeThreads) {
    const int h = i / packs, d = i % packs * W;
    const int64_t to = (place * K + h) * D + d;
    *reinterpret_cast<Raw<T, W>*>(k_cache + to) = load_raw<W>(k.at(0, n, h) + d);
    *reinterpret_cast<Raw<T, W>*>(v_cache + to) = load_raw<W>(v.at(0, n, h) + d);
  }
}

// Returns true if every head of the views can be read 16 bytes at a time.
template <typename T, typename... Tensors>
bool has_wide_heads(int64_t D, const Tensors&... views) {
  const auto fits = [](const Tensor& t) {
    return is_aligned(t.data) && t.strides[1] % kWide<T> == 0 && t.strides[2] % kWide<T> == 0;
  };
  return D % kWide<T> == 0 && (fits(views) && ...);
}

int slices_of(int64_t longest) { return static_cast<int>((longest + kDecodeSlice - 1) / kDecodeSlice); }

// Calls f(W, P) with the packs of a lane and sets the number of lanes that hold a head of D dims.
template <typename T, typename F>
void with_lane_dims(int64_t D, bool is_wide, int& lanes, F&& f) {
  const auto lanes_for = [D](int64_t dims) {
    int64_t count = 1;
    while (count < kWarp && count * dims < D) count *= 2;
    return static_cast<int>(count);
  };
  constexpr int W = kWide<T>;
  if (!is_wide) {
    lanes = kWarp;
    return f(std::integral_constant<int, 1>{}, std::integral_constant<int, kLaneDims>{});
  }
  lanes = lanes_for(W);
  if (lanes * W >= D) return f(std::integral_constant<int, W>{}, std::integral_constant<int, 1>{});
  f(std::integral_constant<int, W>{}, std::integral_constant<int, kLaneDims / W>{});
}

}  // namespace

int64_t attention_decode_scratch(const AttentionShape& shape) {
  const int64_t slices = slices_of(shape.S);
  return slices == 1 ? 0 : shape.B * shape.H * slices * (shape.D + 2);
}

void append_to_cache(const KvCache& cache, const Tensor& k, const Tensor& v, const Tensor& places,
                     Stream& stream) {
  const int64_t K = k.dim(2), D = k.dim(3);
  with_dtype(k.dtype, "append_to_cache", [&]<typename T>() {
    with_width<T>(has_wide_heads<T>(D, k, v), [&](auto width) {
      launch({stream, "append_to_cache", dim3(blocks_for(k.dim(1), 1)), dim3(kDecodeThreads)},
             append<decltype(width)::value, T>, cache.k.as<T>(), cache.v.as<T>(), HeadView<T>(k),
             HeadView<T>(v), places.as<int32_t>(), static_cast<int>(K), static_cast<int>(D));
    });
  });
}

void attention_decode(const DecodeOperands& t, const DecodeConfig& config, const Tensor& scratch,
                      Stream& stream) {
  const char* op = "attention_decode";
  const Tensor& q = t.q;
  const KvCache& cache = t.cache;
  const int64_t N = q.dim(1), H = q.dim(2), K = cache.k.dim(2), D = q.dim(3);
  INGOT_CHECK(D <= kMaxDims, "{}: heads of at most {} dims on a CUDA device, got {}", op, kMaxDims, D);
  with_dtype(q.dtype, op, [&]<typename T>() {
    const int slices = slices_of(t.longest);
    Decode<T> a{.q = HeadView<T>(q),
                .out = HeadView<T>(t.out),
                .k = cache.k.as<T>(),
                .v = cache.v.as<T>(),
                .places = t.places.as<int32_t>(),
                .N = N,
                .positions = cache.positions(),
                .window = config.window,
                .H = static_cast<int>(H),
                .K = static_cast<int>(K),
                .D = static_cast<int>(D),
                .lanes = 1,
                .slices = slices,
                .scale = config.scale,
                .tops = nullptr,
                .totals = nullptr,
                .sums = nullptr};
    if (slices > 1) {
      a.tops = scratch.as<float>();
      a.totals = a.tops + N * H * slices;
      a.sums = a.totals + N * H * slices;
    }
    const int64_t quads = (H / K + kHeads - 1) / kHeads;
    const dim3 grid(blocks_for(N * K * quads, 1), static_cast<unsigned>(slices));
    with_lane_dims<T>(D, has_wide_heads<T>(D, q), a.lanes, [&](auto width, auto packs) {
      launch({stream, op, grid, dim3(kDecodeThreads)},
             decode<decltype(width)::value, decltype(packs)::value, T>, a);
    });
    if (slices > 1) launch({stream, op, dim3(blocks_for(N * H, 1)), dim3(2 * kWarp)}, merge_slices<T>, a);
  });
}

}  // namespace ingot::cuda
