// Rotary embedding in double precision, computed directly from the formula with the angles of a table.
#pragma once

#include "tests/reference/numeric.h"

namespace ingot::test {

struct HeadShape {
  size_t B, T, H, D;
};

// Returns x (B,T,H,D) rotated by row t + offset of table (T_max, R); direction -1 rotates back.
inline Doubles rope_reference(Doubles x, const HeadShape& s, const Doubles& table, size_t R, size_t offset,
                              double direction = 1) {
  for (size_t head = 0; head < s.B * s.T * s.H; ++head) {
    double* row = &x[head * s.D];
    const double* angle = table.data() + (head / s.H % s.T + offset) * R;
    for (size_t i = 0; i < R / 2; ++i) {
      const double cos = angle[i], sin = direction * angle[R / 2 + i];
      const double a = row[i], b = row[i + R / 2];
      row[i] = a * cos - b * sin;
      row[i + R / 2] = b * cos + a * sin;
    }
  }
  return x;
}

}  // namespace ingot::test
