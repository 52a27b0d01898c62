// LayerNorm in double precision, computed directly from the formula.
#pragma once

#include "tests/reference/numeric.h"

namespace ingot::test {

// x is (N, C); w and b are (C) or empty. Returns y (N, C).
inline Doubles layernorm_reference(const Doubles& x, const Doubles& w, const Doubles& b, size_t C,
                                   double eps) {
  Doubles y(x.size());
  for (size_t row = 0; row < x.size() / C; ++row) {
    double mean = 0, variance = 0;
    for (size_t c = 0; c < C; ++c) mean += x[row * C + c] / static_cast<double>(C);
    for (size_t c = 0; c < C; ++c) {
      const double deviation = x[row * C + c] - mean;
      variance += deviation * deviation / static_cast<double>(C);
    }
    for (size_t c = 0; c < C; ++c) {
      const double xhat = (x[row * C + c] - mean) / std::sqrt(variance + eps);
      y[row * C + c] = xhat * (w.empty() ? 1.0 : w[c]) + (b.empty() ? 0.0 : b[c]);
    }
  }
  return y;
}

}  // namespace ingot::test
