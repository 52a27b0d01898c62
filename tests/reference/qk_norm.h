// QK-norm, gains and rotation in double precision, computed directly from the formulas.
#pragma once

#include "tests/reference/rmsnorm.h"
#include "tests/reference/rope.h"

namespace ingot::test {

// An empty table means no rotation. gains: q's D elements for the first q_heads heads, then k's for the
// others; or empty.
inline Doubles qk_norm_reference(const Doubles& x, const HeadShape& s, const Doubles& table, size_t R,
                                 size_t offset, double eps, const Doubles& gains = {}, size_t q_heads = 0) {
  Doubles normed = rmsnorm_reference(x, {}, s.D, eps);
  for (size_t i = 0; i < normed.size() && !gains.empty(); ++i)
    normed[i] *= gains[(i / s.D % s.H < q_heads ? 0 : s.D) + i % s.D];
  return table.empty() ? normed : rope_reference(normed, s, table, R, offset);
}

}  // namespace ingot::test
