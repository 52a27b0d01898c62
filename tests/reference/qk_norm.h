// QK-norm and rotation in double precision, straight from the formula.
#pragma once

#include "tests/reference/rmsnorm.h"
#include "tests/reference/rope.h"

namespace ingot::testing {

// With an empty table, nothing is rotated.
inline Doubles qk_norm_reference(const Doubles& x, const HeadShape& s, const Doubles& table, size_t R,
                                 size_t offset, double eps) {
  const Doubles normed = rmsnorm_reference(x, {}, s.D, eps);
  return table.empty() ? normed : rope_reference(normed, s, table, R, offset);
}

}  // namespace ingot::testing
