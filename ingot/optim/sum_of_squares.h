// Sums of squares in an order that depends on the length alone.
#pragma once

#include <cstdint>
#include <span>

namespace ingot {

// Of n elements: f32 within 4096, f64 across.
double sum_of_squares(const float* x, int64_t n);

// The same by all threads. partials: at least sum_of_squares_parts(n), overwritten.
int64_t sum_of_squares_parts(int64_t n);
double parallel_sum_of_squares(const float* x, int64_t n, std::span<double> partials);

}  // namespace ingot
