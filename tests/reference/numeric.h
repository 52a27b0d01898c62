// This header has what every op test needs: random inputs, a double-precision copy of any tensor, central
// differences, and tolerances derived from the dtype.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ingot/core/float16.h"
#include "ingot/core/philox.h"
#include "ingot/core/tensor.h"

namespace ingot::test {

using Doubles = std::vector<double>;

// Owns the memory of one tensor of a test.
class Buffer {
 public:
  Buffer(DType dtype, const Shape& shape)
      : bytes_(static_cast<size_t>(shape.elements()) * size_bytes(dtype) + 64, char{0x5a}),
        tensor_(bytes_.data(), dtype, shape) {}
  const Tensor& tensor() const { return tensor_; }
  operator const Tensor&() const { return tensor_; }

 private:
  std::vector<char> bytes_;
  Tensor tensor_;
};

double element(const Tensor& t, size_t i);
void set_element(const Tensor& t, size_t i, double value);
Doubles to_doubles(const Tensor& t);
void assign(const Tensor& t, const Doubles& values);

// Returns normal values with the given scale, rounded to the dtype. Different `stream`s are independent.
Buffer random_tensor(DType dtype, const Shape& shape, uint32_t stream, double scale = 1.0);
Buffer zeros(DType dtype, const Shape& shape);

// Half the distance between 1 and the next larger number, which bounds the relative error of one rounding.
inline double unit_roundoff(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

// Asserts that every |got - want| <= tolerance * max(magnitude, |want|).
void expect_close(const Tensor& got, const Doubles& want, double tolerance, const std::string& what,
                  double magnitude = 1.0);

// Returns the gradient of f at x by central differences in double; the error is O(h^2).
Doubles central_differences(const std::function<double(const Doubles&)>& f, Doubles x, double h = 1e-5);

double dot(const Doubles& a, const Doubles& b);

}  // namespace ingot::test
