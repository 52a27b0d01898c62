// RMSNorm in double precision, computed directly from the formula.
#pragma once

#include "tests/reference/numeric.h"

namespace ingot::test {

// x is (N, C); w is (C) or empty. Returns y (N, C).
inline Doubles rmsnorm_reference(const Doubles& x, const Doubles& w, size_t C, double eps) {
  Doubles y(x.size());
  for (size_t row = 0; row < x.size() / C; ++row) {
    double mean_square = 0;
    for (size_t c = 0; c < C; ++c) mean_square += x[row * C + c] * x[row * C + c] / static_cast<double>(C);
    const double rstd = 1 / std::sqrt(mean_square + eps);
    for (size_t c = 0; c < C; ++c) y[row * C + c] = x[row * C + c] * rstd * (w.empty() ? 1.0 : w[c]);
  }
  return y;
}

}  // namespace ingot::test
