#include <cmath>
#include <limits>

#include "ingot/ops/attention/attention_kernels.h"
#include "ingot/ops/attention/attention_softmax.h"

namespace ingot::cpu {
namespace {

using tile::Matrix;
using vec::kLanes;
using vec::Vec;

constexpr int64_t kKeys = 256;      // keys of a tile
constexpr int64_t kUnits = 16;      // minimum number of units of work, if there are enough keys
constexpr int64_t kPartKeys = 512;  // minimum number of keys per slice

// Returns the number of slices that the keys of one query are divided into. Their results are merged in
// order. It depends on the shape of a single query and not on the number of threads.
int64_t key_parts(int64_t K, int64_t keys) {
  return std::clamp<int64_t>(keys / kPartKeys, 1, (kUnits + K - 1) / K);
}

// The result of one slice of the keys for the query heads of one kv head.
struct Part {
  Matrix q, out;     // (H/K, D) in f32; out is not yet divided by sum
  Matrix s;          // (H/K, kKeys)
  float *max, *sum;  // (H/K)

  Part(ScratchLayout& layout, const AttentionShape& shape)
      : q(layout.matrix(shape.H / shape.K, shape.D)),
        out(layout.matrix(shape.H / shape.K, shape.D)),
        s(layout.matrix(shape.H / shape.K, kKeys)),
        max(layout.take(shape.H / shape.K)),
        sum(layout.take(shape.H / shape.K)) {}
};

int64_t part_size(const AttentionShape& shape) {
  ScratchLayout layout(nullptr);
  Part(layout, shape);
  return layout.used();
}

// s[0 .. kLanes) = q . k[j] for kLanes keys, with one transposition instead of kLanes horizontal sums.
template <typename T>
void dot_block(float* s, const float* q, const T* k, int64_t stride, int64_t D) {
  Vec sums[kLanes] = {};
  const T* first[(kLanes + 2) / 3];  // each for three keys, at +0, +stride, +2 stride
  for (int64_t l = 0; l < kLanes; l += 3) first[l / 3] = k + l * stride;
  int64_t d = 0;
  for (; d + kLanes <= D; d += kLanes) {
    const Vec x = vec::load(q + d);
    _Pragma("GCC unroll 16") for (int l = 0; l < kLanes; ++l) sums[l] +=
        x * vec::load(first[l / 3] + l % 3 * stride + d);
  }
  for (int l = 0; d < D && l < kLanes; ++l)
    sums[l] += vec::load(q + d) * vec::load_first(k + l * stride + d, D - d);
  tile::transpose(sums);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) sums[l] += sums[l + width];
  vec::store(s, sums[0]);
}

// s[j] = q . k[j] for n keys.
template <typename T>
void dot_rows(float* s, const float* q, const T* k, int64_t stride, int64_t n, int64_t D) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) dot_block(s + j, q, k + j * stride, stride, D);
  for (; j < n; ++j) {
    Vec sum{};
    vec::for_each(D, [&](auto load, auto) { sum += load(q) * load(k + j * stride); });
    s[j] = vec::sum(sum);
  }
}

// out = rescale * out + sum_j p[j] v[j].
template <typename T>
void add_rows(float* out, float rescale, const float* p, const T* v, int64_t stride, int64_t n, int64_t D) {
  constexpr int kVecs = 8;
  int64_t d = 0;
  for (; d + kVecs * kLanes <= D; d += kVecs * kLanes) {
    Vec acc[kVecs];
    for (int w = 0; w < kVecs; ++w) acc[w] = vec::load(out + d + w * kLanes) * rescale;
    for (int64_t j = 0; j < n; ++j)
      for (int w = 0; w < kVecs; ++w) acc[w] += p[j] * vec::load(v + j * stride + d + w * kLanes);
    for (int w = 0; w < kVecs; ++w) vec::store(out + d + w * kLanes, acc[w]);
  }
  for (; d < D; d += kLanes) {
    const int64_t lanes = std::min<int64_t>(kLanes, D - d);
    Vec acc = vec::load(out + d) * rescale;
    for (int64_t j = 0; j < n; ++j)
      acc += p[j] *
             (lanes == kLanes ? vec::load(v + j * stride + d) : vec::load_first(v + j * stride + d, lanes));
    vec::store(out + d, acc);
  }
}

// Replaces n scores by exp(scale (s - max)) and updates max and sum; returns the factor for earlier
// sums. Writes whole registers, for which s must have room.
float softmax_row(float* s, int64_t n, float scale, float& max, float& sum) {
  std::fill_n(s + n, tile::round_up(n, kLanes) - n, -std::numeric_limits<float>::infinity());
  Vec top = vec::splat(max), total{};
  for (int64_t j = 0; j < n; j += kLanes) top = vec::max(vec::load(s + j), top);
  const float new_max = vec::max(top);
  const float rescale = std::exp((max - new_max) * scale);
  for (int64_t j = 0; j < n; j += kLanes) {
    const Vec e = tile::exp_of_negative((vec::load(s + j) - new_max) * scale);
    vec::store(s + j, e);
    total += e;
  }
  max = new_max;
  sum = sum * rescale + vec::sum(total);
  return rescale;
}

template <typename T>
void decode_part(const AttentionProblem& p, Part& part, const AttentionViews<T>& t, int64_t b, int64_t kv,
                 const DecodeKeys& keys) {
  const int64_t G = p.shape.H / p.shape.K, D = p.shape.D;
  tile::load_rows(part.q, t.q.at(b, 0, kv * G), t.q.head_stride, G, D);
  std::fill_n(part.out.data, G * part.out.ld, 0.0f);
  std::fill_n(part.max, G, -std::numeric_limits<float>::infinity());
  std::fill_n(part.sum, G, 0.0f);
  for (int64_t s = keys.begin; s < keys.end; s += kKeys) {
    const int64_t n = std::min(kKeys, keys.end - s);
    for (int64_t g = 0; g < G; ++g) {
      dot_rows(part.s.row(g), part.q.row(g), t.k.at(keys.row, s, kv), t.k.time_stride, n, D);
      const float rescale = softmax_row(part.s.row(g), n, p.scale, part.max[g], part.sum[g]);
      add_rows(part.out.row(g), rescale, part.s.row(g), t.v.at(keys.row, s, kv), t.v.time_stride, n, D);
    }
  }
}

// Merges part into total for head g.
void merge_part(Part& total, const Part& part, float scale, int64_t g, int64_t D) {
  const float max = std::max(total.max[g], part.max[g]);
  const float a = std::exp((total.max[g] - max) * scale), b = std::exp((part.max[g] - max) * scale);
  for (int64_t d = 0; d < D; ++d) total.out.row(g)[d] = a * total.out.row(g)[d] + b * part.out.row(g)[d];
  total.sum[g] = a * total.sum[g] + b * part.sum[g];
  total.max[g] = max;
}

}  // namespace

int64_t attention_decode_scratch(const AttentionShape& shape) {
  return shape.B * shape.K * key_parts(shape.K, shape.S) * part_size(shape);
}

template <typename T>
void attention_decode(const AttentionProblem& p, const AttentionViews<T>& t, std::span<const DecodeKeys> keys,
                      float* scratch) {
  const AttentionShape& shape = p.shape;
  const int64_t most = key_parts(shape.K, shape.S), size = part_size(shape), G = shape.H / shape.K;
  const auto parts_of = [&](const DecodeKeys& own) {
    return own.end == 0 ? 0 : key_parts(shape.K, own.end - own.begin);
  };
  const auto part_of = [&](int64_t unit) {
    ScratchLayout layout(scratch + unit * size);
    return Part(layout, shape);
  };
  parallel_for(shape.B * shape.K * most, 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t b = unit / most / shape.K, kv = unit / most % shape.K, i = unit % most;
      const DecodeKeys& own = keys[static_cast<size_t>(b)];
      if (i >= parts_of(own)) continue;
      Part part = part_of(unit);
      const Range slice = split_range(own.end - own.begin, parts_of(own), i);
      decode_part(p, part, t, b, kv, {own.row, own.begin + slice.begin, own.begin + slice.end});
    }
  });
  for (int64_t head = 0; head < shape.B * shape.H; ++head) {
    const int64_t b = head / shape.H, h = head % shape.H, g = h % G;
    const int64_t parts = parts_of(keys[static_cast<size_t>(b)]);
    if (parts == 0) {
      std::fill_n(t.out.at(b, 0, h), shape.D, T(0.0f));
      continue;
    }
    const int64_t first = (b * shape.K + h / G) * most;
    Part total = part_of(first);
    for (int64_t i = 1; i < parts; ++i) merge_part(total, part_of(first + i), p.scale, g, shape.D);
    tile::store_rows(t.out.at(b, 0, h), 0, total.out.from_row(g), 1, shape.D, 1.0f / total.sum[g]);
    if (t.lse) t.lse[head] = total.max[g] * p.scale + std::log(total.sum[g]);
  }
}

template void attention_decode(const AttentionProblem&, const AttentionViews<float>&,
                               std::span<const DecodeKeys>, float*);
template void attention_decode(const AttentionProblem&, const AttentionViews<bf16>&,
                               std::span<const DecodeKeys>, float*);
template void attention_decode(const AttentionProblem&, const AttentionViews<f16>&,
                               std::span<const DecodeKeys>, float*);

}  // namespace ingot::cpu
