// Sum and maximum over one row, accumulated in four registers to hide the latency of an addition.
#pragma once

#include <cstdint>
#include <limits>

#include "ingot/ops/simd/vec.h"

namespace ingot::vec {

// Returns the sum over [0, n) of term(load, store), where load and store are as for for_each's body. In
// the last partial register the term may return any value in the missing lanes; they are not added.
template <typename Term>
[[gnu::always_inline]] inline float row_total(int64_t n, Term&& term) {
  const auto at = [&](int64_t i) {
    return term([i](const auto* p) { return load(p + i); }, [i](auto* p, Vec v) { store(p + i, v); });
  };
  Vec total[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int k = 0; k < 4; ++k) total[k] += at(i + k * kLanes);
  for (; i + kLanes <= n; i += kLanes) total[0] += at(i);
  if (i < n) {
    float lanes[kLanes] = {};
    const Vec last = term([i, n](const auto* p) { return load_first(p + i, n - i); },
                          [i, n](auto* p, Vec v) { store_first(p + i, v, n - i); });
    store_first(lanes, last, n - i);
    total[1] += load(lanes);
  }
  return sum((total[0] + total[1]) + (total[2] + total[3]));
}

// Returns the largest of x[0..n), or -inf if n = 0. NaN may be ignored.
inline float row_max(const float* x, int64_t n) {
  float best = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  if (n >= 4 * kLanes) {
    Vec largest[4];
    for (int k = 0; k < 4; ++k) largest[k] = load(x + k * kLanes);
    for (i = 4 * kLanes; i + 4 * kLanes <= n; i += 4 * kLanes)
      for (int k = 0; k < 4; ++k) largest[k] = max(largest[k], load(x + i + k * kLanes));
    best = max(max(max(largest[0], largest[1]), max(largest[2], largest[3])));
  }
  for (; i < n; ++i) best = best > x[i] ? best : x[i];
  return best;
}

}  // namespace ingot::vec
