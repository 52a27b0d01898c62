// Merges the sums of a row over several ranges of columns, by a rule that all devices share. Internal to the
// loss ops.
#pragma once

#include "ingot/ops/loss/cross_entropy_tile.h"

namespace ingot {

inline constexpr TileRow kEmptyRow{.total = 0, .z_sum = 0, .x_max = 0, .z_max = 0, .x_target = 0, .top = -1};

// Adds the sums of columns further to the right to those of `row`. exp: of a double.
template <typename Exp>
constexpr void merge_row(TileRow& row, const TileRow& right, const Exp& exp) {
  row.z_sum += right.z_sum;
  if (right.top < 0) return;
  const double gap = static_cast<double>(right.z_max) - static_cast<double>(row.z_max);
  if (row.top < 0 || right.x_max > row.x_max) {
    row.total = (row.top < 0 ? 0 : row.total * exp(-gap)) + right.total;
    row.x_max = right.x_max;
    row.z_max = right.z_max;
    row.top = right.top;
  } else {
    row.total += right.total * exp(gap);
  }
}

// Returns the sums of all columns from those of `parts` ranges of part_columns columns each. part points to
// the row's sums of the first range; those of the next range are `stride` rows further on.
template <typename Exp>
constexpr TileRow merged_row(const TileRow* part, int64_t stride, int64_t parts, int32_t target,
                             int64_t part_columns, const Exp& exp) {
  TileRow merged = kEmptyRow;
  for (int64_t p = 0; p < parts; ++p) {
    const TileRow& right = part[p * stride];
    merge_row(merged, right, exp);
    if (target >= 0 && target / part_columns == p) merged.x_target = right.x_target;
  }
  return merged;
}

}  // namespace ingot
