// Token and position embedding in double precision, computed directly from the formula.
#pragma once

#include "tests/reference/numeric.h"

namespace ingot::test {

// wte is (V, C); wpe is (positions, C) or empty; there is one token per row. Returns out (N, C).
inline Doubles embedding_reference(const std::vector<int32_t>& tokens, const Doubles& wte, const Doubles& wpe,
                                   size_t C, size_t T, size_t first_position) {
  Doubles out(tokens.size() * C);
  for (size_t n = 0; n < tokens.size(); ++n)
    for (size_t c = 0; c < C; ++c) {
      const double position = wpe.empty() ? 0.0 : wpe[(n % T + first_position) * C + c];
      out[n * C + c] = wte[static_cast<size_t>(tokens[n]) * C + c] + position;
    }
  return out;
}

}  // namespace ingot::test
