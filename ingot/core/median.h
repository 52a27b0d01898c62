// The upper median of numbers, which is one of them.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

namespace ingot {

// Reorders the values. REQUIRES: values is not empty.
inline double median_of(std::span<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns 0 if there are no values.
inline double median(std::vector<double> values) { return values.empty() ? 0 : median_of(values); }

}  // namespace ingot
