// The one pass over memory that every rule's update is: weights, gradient and state of a range are read once
// and written once, in pieces that stay in the first cache while the rule, the sums, the cast to the compute
// dtype and the clearing of the gradient go over them.
#pragma once

#include <algorithm>
#include <cstring>

#include "ingot/optim/rule.h"

namespace ingot {

inline constexpr int64_t kPieceElements = 2048;

// Adds what happened between `before` and `w` (n <= kPieceElements).
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

// Calls body(w, g, i, n) for the pieces of the range: n elements of the parameter from element i on. The body
// changes w[0 .. n) and its own state.
template <typename Body>
RangeTotals for_each_piece(const OptimParam& p, Range range, const RuleStep& step, Body&& body) {
  RangeTotals totals;
  float before[kPieceElements];
  for (int64_t i = range.begin; i < range.end; i += kPieceElements) {
    const int64_t n = std::min(kPieceElements, range.end - i);
    float *w = p.w.as<float>() + i, *g = p.g.as<float>() + i;
    if (step.wants_totals) std::memcpy(before, w, static_cast<size_t>(n) * sizeof(float));
    body(w, static_cast<const float*>(g), i, n);
    if (step.wants_totals) add_totals(totals, before, w, g, step.grad_scale, n);
    std::memset(g, 0, static_cast<size_t>(n) * sizeof(float));
    if (!p.compute) continue;
    bf16* compute = p.compute.as<bf16>() + i;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) compute[j] = bf16(w[j]);
  }
  return totals;
}

}  // namespace ingot
