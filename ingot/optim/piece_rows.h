// Where the elements of a piece lie in the whole parameter.
#pragma once

#include <algorithm>
#include <span>

#include "ingot/optim/rule.h"

namespace ingot {

// Calls f(j, row, column, count) for the runs of elements i + j, ... of a piece, or of a whole parameter,
// that lie side by side in one row of it; i <= i + j < i + n.
template <typename F>
void for_each_run(const OptimParam& p, int64_t i, int64_t n, F&& f) {
  const Box all{0, p.whole()[0], 0, p.columns()};
  int64_t here = 0;  // the box's first element
  for (const Box& box : p.is_piece() ? std::span<const Box>(p.boxes) : std::span<const Box>(&all, 1)) {
    const int64_t end = std::min(i + n, here + box.elements());
    for (int64_t k = std::max(i, here); k < end;) {
      const int64_t row = (k - here) / box.columns, column = (k - here) % box.columns;
      const int64_t count = std::min(end - k, box.columns - column);
      f(k - i, box.row + row, box.column + column, count);
      k += count;
    }
    here += box.elements();
  }
}

}  // namespace ingot
