#include "ingot/optim/sum_of_squares.h"

#include <algorithm>

#include "ingot/core/parallel.h"

namespace ingot {
namespace {

constexpr int64_t kPart = 1 << 15;

}  // namespace

double sum_of_squares(const float* x, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; i += 4096) {
    float part = 0;
    const int64_t end = std::min<int64_t>(i + 4096, n);
#pragma omp simd reduction(+ : part)
    for (int64_t j = i; j < end; ++j) part += x[j] * x[j];
    total += static_cast<double>(part);
  }
  return total;
}

int64_t sum_of_squares_parts(int64_t n) { return (n + kPart - 1) / kPart; }

double parallel_sum_of_squares(const float* x, int64_t n, std::span<double> partials) {
  const int64_t parts = sum_of_squares_parts(n);
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      partials[static_cast<size_t>(i)] = sum_of_squares(x + i * kPart, std::min(kPart, n - i * kPart));
  });
  double total = 0;
  for (int64_t i = 0; i < parts; ++i) total += partials[static_cast<size_t>(i)];
  return total;
}

}  // namespace ingot
