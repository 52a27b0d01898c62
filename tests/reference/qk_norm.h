// QK-norm followed by rotation in double precision, computed directly from the formulas.
#pragma once

#include "tests/reference/rmsnorm.h"
#include "tests/reference/rope.h"

namespace ingot::testing {

// An empty table means no rotation.
inline Doubles qk_norm_reference(const Doubles& x, const HeadShape& s, const Doubles& table, size_t R,
                                 size_t offset, double eps) {
  const Doubles normed = rmsnorm_reference(x, {}, s.D, eps);
  return table.empty() ? normed : rope_reference(normed, s, table, R, offset);
}

}  // namespace ingot::testing
