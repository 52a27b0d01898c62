// Rect: a rectangle of a matrix. A vector of n numbers counts as an n x 1 matrix.
#pragma once

#include <cstdint>

namespace ingot {

struct Rect {
  int64_t row = 0, rows = 0;        // [row, row + rows)
  int64_t column = 0, columns = 0;  // [column, column + columns)

  int64_t elements() const { return rows * columns; }
  bool operator==(const Rect&) const = default;
};

}  // namespace ingot
