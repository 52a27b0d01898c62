// Helpers for strided (B,T,H,D) views in tests.
#pragma once

#include "tests/reference/numeric.h"

namespace ingot::test {

// Returns the elements of a strided (B,T,H,D) view in row-major order.
inline Doubles gather(const Tensor& t) {
  Doubles values;
  for (int64_t b = 0; b < t.dim(0); ++b)
    for (int64_t i = 0; i < t.dim(1); ++i)
      for (int64_t h = 0; h < t.dim(2); ++h)
        for (int64_t d = 0; d < t.dim(3); ++d) {
          const int64_t at = b * t.strides[0] + i * t.strides[1] + h * t.strides[2] + d;
          values.push_back(element(t, static_cast<size_t>(at)));
        }
  return values;
}

inline void expect_near(const Tensor& got, const Doubles& want, double tolerance, const std::string& what) {
  const Doubles values = gather(got);
  ASSERT_EQ(values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(values[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << what << "[" << i << "]";
}

}  // namespace ingot::test
