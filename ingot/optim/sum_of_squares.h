// Sums of squares in an order that depends only on the length.
#pragma once

#include <cstdint>
#include <span>

namespace ingot {

// Sums n elements: in f32 within runs of 4096, in f64 across them.
double sum_of_squares(const float* x, int64_t n);

// Does the same with all threads. partials: at least sum_of_squares_parts(n) numbers, overwritten.
int64_t sum_of_squares_parts(int64_t n);
double parallel_sum_of_squares(const float* x, int64_t n, std::span<double> partials);

}  // namespace ingot
