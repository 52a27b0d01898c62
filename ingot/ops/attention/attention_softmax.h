// Vectorised softmax for attention: online softmax (Milakov & Gimelshein 2018, arXiv:1805.02867) over
// key-major scores, a panel of kPanel queries at a time, and its gradient.
#pragma once

#include <limits>

#include "ingot/ops/attention/attention_tile.h"

namespace ingot::tile {

// Returns exp(x) to 2 ulp for x <= 0 (up to a rounding error above 0), which is the only case here; it
// takes half the work of vec::exp. The result is 0 below -86.6, where e^x < 3e-38; NaN stays NaN.
inline Vec exp_of_negative(Vec x) {
  const Vec kLowest = vec::splat(-86.6f);
  const Vec kMagic =
      vec::splat(12582912.0f + 127.0f);  // 1.5 * 2^23: rounds to an integer, biased for the exponent
  const Vec clamped = vec::max(kLowest, x);
  const Vec shifted = clamped * 1.44269504088896341f + kMagic;
  const Vec n = shifted - kMagic;
  const Vec r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  Vec p = vec::splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Vec power = (Vec)((vec::IntVec)shifted << 23);  // 2^n
  return x < kLowest ? Vec{} : p * power;
}

// Sets the scores of keys behind the diagonal of a query to -inf, among keys [begin, end).
inline void mask_panel(Matrix s, const Block& block, int64_t q, int64_t begin, int64_t end) {
  vec::IntVec lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  const Vec hidden = vec::splat(-std::numeric_limits<float>::infinity());
  for (int64_t j = begin; j < end; ++j)
    for (int w = 0; w < kPanelVecs; ++w) {
      float* at = s.row(j) + q + w * kLanes;
      const auto first_lane = static_cast<int32_t>(j + block.diagonal - q) - w * kLanes;
      vec::store(at, lane >= first_lane ? vec::load(at) : hidden);
    }
}

// Sets the scores of keys before the window of a query to -inf, among keys [0, end). Lanes behind the last
// query stay.
inline void mask_window(Matrix s, const Block& block, int64_t q, int64_t end) {
  if (block.window == 0) return;
  vec::IntVec lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  const Vec hidden = vec::splat(-std::numeric_limits<float>::infinity());
  const int64_t first_visible =
      block.last_query_of_panel(q) - block.diagonal - block.window + 1;  // to all queries
  for (int64_t j = 0; j < std::min(end, first_visible); ++j)
    for (int w = 0; w < kPanelVecs; ++w) {
      const int64_t first = q + w * kLanes;
      const auto end_lane =
          static_cast<int32_t>(std::max<int64_t>(j + block.diagonal + block.window - first, 0));
      const auto last_lane = static_cast<int32_t>(std::clamp<int64_t>(block.m - first, 0, kLanes));
      float* at = s.row(j) + first;
      vec::store(at, ((lane < end_lane) | (lane >= last_lane)) ? vec::load(at) : hidden);
    }
}

// Sets the scores of keys that a query of the panel does not see to -inf. Returns the number of keys that any
// of them sees.
inline int64_t mask_hidden(Matrix s, const Block& block, int64_t q) {
  const int64_t end = block.visible_keys(block.last_query_of_panel(q));
  mask_panel(s, block, q, block.visible_keys(q), end);
  mask_window(s, block, q, end);
  return end;
}

inline void zero_panel(Matrix s, int64_t q, int64_t begin, int64_t end) {
  for (int64_t j = begin; j < end; ++j) std::fill_n(s.row(j) + q, kPanel, 0.0f);
}

// s becomes exp(scale (s - max)) for visible keys and 0 elsewhere. Updates the running max and sum of
// each query; rescale is the factor for earlier sums.
inline void softmax_panel(Matrix s, const Block& block, int64_t q, float scale, float* max, float* sum,
                          float* rescale) {
  const int64_t end = mask_hidden(s, block, q);
  Vec top[kPanelVecs], base[kPanelVecs], total[kPanelVecs];
  for (int w = 0; w < kPanelVecs; ++w) top[w] = vec::load(max + q + w * kLanes);
  for (int64_t j = 0; j < end; ++j)
    for (int w = 0; w < kPanelVecs; ++w) top[w] = vec::max(vec::load(s.row(j) + q + w * kLanes), top[w]);
  for (int w = 0; w < kPanelVecs; ++w) {
    const int64_t lane = q + w * kLanes;
    const Vec factor = exp_of_negative((vec::load(max + lane) - top[w]) * scale);
    vec::store(max + lane, top[w]);
    vec::store(rescale + lane, factor);
    total[w] = vec::load(sum + lane) * factor;
    base[w] = top[w] * scale;
  }
  for (int64_t j = 0; j < end; ++j)
    for (int w = 0; w < kPanelVecs; ++w) {
      float* at = s.row(j) + q + w * kLanes;
      const Vec e = exp_of_negative(vec::load(at) * scale - base[w]);
      vec::store(at, e);
      total[w] += e;
    }
  for (int w = 0; w < kPanelVecs; ++w) vec::store(sum + q + w * kLanes, total[w]);
  zero_panel(s, q, end, block.n);
}

// s becomes p = exp(scale s - lse), dp becomes ds = p (dp - delta) for visible keys; both are 0 elsewhere.
inline void softmax_gradient_panel(Matrix s, Matrix dp, const Block& block, int64_t q, float scale,
                                   const float* lse, const float* delta) {
  const int64_t end = mask_hidden(s, block, q);
  for (int64_t j = 0; j < end; ++j)
    for (int w = 0; w < kPanelVecs; ++w) {
      const int64_t lane = q + w * kLanes;
      const Vec p = exp_of_negative(vec::load(s.row(j) + lane) * scale - vec::load(lse + lane));
      vec::store(s.row(j) + lane, p);
      vec::store(dp.row(j) + lane, p * (vec::load(dp.row(j) + lane) - vec::load(delta + lane)));
    }
  zero_panel(s, q, end, block.n);
  zero_panel(dp, q, end, block.n);
}

}  // namespace ingot::tile
