// The rotation of one head, shared by rope and qk_norm.
#pragma once

#include "ingot/core/tensor.h"
#include "ingot/ops/simd/vec.h"

namespace ingot {

// The rows of a rope_table, or none, in which case nothing is rotated.
class RopeRows {
 public:
  // Checks that the table fits D and contains the positions; `op` is the op's name for errors.
  RopeRows(const Tensor& table, int64_t D, int64_t T, int64_t position_offset, const char* op);

  int64_t rotated_dims() const { return R_; }
  const float* at(int64_t t) const { return rows_ + t * R_; }  // cos (R/2), sin (R/2) of row t's position

 private:
  const float* rows_ = nullptr;
  int64_t R_ = 0;
};

// y (D) = the head whose elements value(load, first) returns, with its first R dims rotated by `angle`,
// backwards if direction is -1. value may read the elements of y that are about to be written.
template <typename T, typename Value>
void rotate_row(T* y, const float* angle, float direction, int64_t R, int64_t D, Value&& value) {
  const int64_t half = R / 2;
  vec::for_each(half, [=](auto load, auto store) {
    const vec::Vec cos = load(angle), sin = load(angle + half) * direction;
    const vec::Vec a = value(load, int64_t{0}), b = value(load, half);
    store(y, a * cos - b * sin);
    store(y + half, b * cos + a * sin);
  });
  vec::for_each(D - R, [=](auto load, auto store) { store(y + R, value(load, R)); });
}

}  // namespace ingot
