// The one pass over memory that every CPU update makes: weights, gradient and state of a range are read
// once and written once. The pass goes in runs of kRunElements, which stay in the L1 cache during the
// rule's update, the sums, the cast to the compute dtype and the zeroing of the gradient.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "ingot/core/float16.h"
#include "ingot/core/parallel.h"
#include "ingot/ops/bf16_tail.h"
#include "ingot/optim/rule.h"
#include "ingot/optim/stochastic_rounding.h"

namespace ingot {

inline constexpr int64_t kRunElements = 2048;

// Adds the totals of the change from `before` to `w` (n <= kRunElements).
inline void add_totals(RangeTotals& totals, const float* before, const float* w, const float* g,
                       float grad_scale, int64_t n) {
  float weights = 0, grads = 0, updates = 0, dots = 0;
#pragma omp simd reduction(+ : weights, grads, updates, dots)
  for (int64_t j = 0; j < n; ++j) {
    const float change = w[j] - before[j], gradient = g[j] * grad_scale;
    weights += before[j] * before[j];
    grads += gradient * gradient;
    updates += change * change;
    dots += change * before[j];
  }
  totals.weight_squares += static_cast<double>(weights);
  totals.grad_squares += static_cast<double>(grads);
  totals.update_squares += static_cast<double>(updates);
  totals.update_dot_weight += static_cast<double>(dots);
}

// Returns weights [i, i + n) of a parameter, n <= kRunElements: in place if they are f32, else
// converted into `converted`.
inline float* load_weights(const OptimParam& p, int64_t i, int64_t n, float* converted) {
  if (p.w.dtype == DType::f32) return p.w.as<float>() + i;
  const bf16* w = p.w.as<bf16>() + i;
  if (p.tail) {
    const uint16_t* tail = p.tail.as<uint16_t>() + i;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) converted[j] = join_tail(w[j], tail[j]);
  } else {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) converted[j] = static_cast<float>(w[j]);
  }
  return converted;
}

template <typename T>
void copy_rounded(T* to, const float* from, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) to[j].bits = T(from[j]).bits;  // assigning bits lets the loop vectorise
}

// Stores the new weights, and their copy in the compute dtype if there is one.
inline void store_weights(const OptimParam& p, int64_t i, int64_t n, const float* converted, int64_t t) {
  if (p.w.dtype == DType::f32) {
    if (p.compute.dtype == DType::f16 && p.compute)
      copy_rounded(p.compute.as<f16>() + i, converted, n);
    else if (p.compute)
      copy_rounded(p.compute.as<bf16>() + i, converted, n);
    return;
  }
  bf16* w = p.w.as<bf16>() + i;
  if (p.tail) {
    uint16_t* tail = p.tail.as<uint16_t>() + i;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) split_tail(w[j], tail[j], converted[j]);
    return;
  }
  uint16_t random[kRunElements];
  rounding_bits(random, p, i, n, t);
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) w[j].bits = round_stochastically(converted[j], random[j]).bits;
}

inline void move_average(const Tensor& average, int64_t i, int64_t n, const float* w, float part) {
  float* a = average.as<float>() + i;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) a[j] += (w[j] - a[j]) * part;
}

// Calls body(w, g, i, n) for each run of the range: n elements of the parameter from element i on. The
// body changes w[0 .. n) and its own state.
template <typename Body>
RangeTotals for_each_run(const ParamState& state, Range range, const RuleStep& step, Body&& body) {
  const OptimParam& p = state.param;
  RangeTotals totals;
  float before[kRunElements], converted[kRunElements];
  for (int64_t i = range.begin; i < range.end; i += kRunElements) {
    const int64_t n = std::min(kRunElements, range.end - i);
    float *w = load_weights(p, i, n, converted), *g = p.g.as<float>() + i;
    if (step.wants_totals) std::memcpy(before, w, static_cast<size_t>(n) * sizeof(float));
    body(w, static_cast<const float*>(g), i, n);
    if (step.wants_totals)
      add_totals(totals, before, w, g, step.grad_scale, std::clamp<int64_t>(p.own_elements() - i, 0, n));
    if (!p.keeps_g) std::memset(g, 0, static_cast<size_t>(n) * sizeof(float));
    if (state.average) move_average(state.average, i, n, w, step.average_part);
    store_weights(p, i, n, w, step.t);
  }
  return totals;
}

// Calls move(update, range) for every range of kRangeElements elements of the parameters, in all threads, and
// keeps the RangeTotals that it returns. Each element, or each block of 256, is updated independently, so the
// result does not depend on the number of threads.
template <typename Move>
void update_ranges(std::span<const ParamUpdate> updates, const Move& move) {
  std::vector<int64_t> first{0};  // the first range of each parameter, and the number of all
  for (const ParamUpdate& update : updates)
    first.push_back(first.back() + (update.p.param.elements() + kRangeElements - 1) / kRangeElements);
  parallel_for(first.back(), 1, [&](int64_t begin, int64_t end) {
    size_t i = 0;
    for (int64_t k = begin; k < end; ++k) {
      while (k >= first[i + 1]) ++i;
      const ParamUpdate& update = updates[i];
      const auto own = static_cast<size_t>(k - first[i]);
      const int64_t at = (k - first[i]) * kRangeElements;
      const Range range{at, std::min(at + kRangeElements, update.p.param.elements())};
      const RangeTotals totals = move(update, range);
      if (!update.totals.empty()) update.totals[own] = totals;
    }
  });
}

}  // namespace ingot
