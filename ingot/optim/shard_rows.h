// Maps the elements of a shard to rows and columns of the whole parameter.
#pragma once

#include <algorithm>
#include <span>

#include "ingot/optim/rule.h"

namespace ingot {

// Calls f(j, row, column, count) for each run of `count` elements, from element i + j of a shard or a
// whole parameter on, that is contiguous in one row of the whole; i <= i + j < i + n.
template <typename F>
void for_each_run(const OptimParam& p, int64_t i, int64_t n, F&& f) {
  const Rect all{0, p.whole()[0], 0, p.columns()};
  int64_t here = 0;  // the rectangle's first element
  for (const Rect& rect : p.is_shard() ? std::span<const Rect>(p.rects) : std::span<const Rect>(&all, 1)) {
    const int64_t end = std::min(i + n, here + rect.elements());
    for (int64_t k = std::max(i, here); k < end;) {
      const int64_t row = (k - here) / rect.columns, column = (k - here) % rect.columns;
      const int64_t count = std::min(end - k, rect.columns - column);
      f(k - i, rect.row + row, rect.column + column, count);
      k += count;
    }
    here += rect.elements();
  }
}

}  // namespace ingot
