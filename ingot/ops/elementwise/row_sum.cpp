#include "ingot/ops/row_sum.h"

#include <algorithm>

#include "ingot/core/parallel.h"

namespace ingot {

int64_t row_sum_parts(Device device) { return device == Device::kCuda ? kRowParts : num_threads(); }

RowSum::RowSum(const Tensor& total, const Tensor& scratch) {
  if (!total) return;
  C_ = total.elements();
  total_ = total.as<float>();
  INGOT_CHECK(num_threads() <= kMaxThreads, "RowSum: at most {} threads, got {}", kMaxThreads, num_threads());
  INGOT_CHECK(scratch && scratch.dtype == DType::f32 && scratch.elements() >= num_threads() * C_,
              "RowSum: scratch must be f32 of at least {} x {} elements, got {} {}", num_threads(), C_,
              name(scratch.dtype), scratch.shape.to_string());
  scratch_ = scratch.as<float>();
}

float* RowSum::partial(int thread) {
  float* row = scratch_ + thread * C_;
  std::fill_n(row, C_, 0.0f);
  used_[thread] = true;
  return row;
}

void RowSum::finish() {
  if (!total_) return;
  for (int thread = 0; thread < num_threads(); ++thread) {
    if (!used_[thread]) continue;
    const float* row = scratch_ + thread * C_;
    for (int64_t c = 0; c < C_; ++c) total_[c] += row[c];
  }
}

}  // namespace ingot
