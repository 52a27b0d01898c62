// What every op test needs: random inputs, a double-precision view of any tensor, central differences, and
// tolerances that follow from the dtype.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ingot/core/float16.h"
#include "ingot/core/philox.h"
#include "ingot/core/tensor.h"

namespace ingot::testing {

using Doubles = std::vector<double>;

// Owns memory for one tensor of a test.
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

inline double element(const Tensor& t, size_t i) {
  if (t.dtype == DType::bf16) return static_cast<double>(static_cast<float>(t.as<bf16>()[i]));
  if (t.dtype == DType::f16) return static_cast<double>(static_cast<float>(t.as<f16>()[i]));
  return static_cast<double>(t.as<float>()[i]);
}

inline void set_element(const Tensor& t, size_t i, double value) {
  if (t.dtype == DType::bf16)
    t.as<bf16>()[i] = bf16(static_cast<float>(value));
  else if (t.dtype == DType::f16)
    t.as<f16>()[i] = f16(static_cast<float>(value));
  else
    t.as<float>()[i] = static_cast<float>(value);
}

inline Doubles to_doubles(const Tensor& t) {
  Doubles values(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element(t, i);
  return values;
}

inline void assign(const Tensor& t, const Doubles& values) {
  ASSERT_EQ(static_cast<size_t>(t.elements()), values.size());
  for (size_t i = 0; i < values.size(); ++i) set_element(t, i, values[i]);
}

// Normal values with the given scale, rounded to the dtype. Different `stream`s are independent.
inline Buffer random_tensor(DType dtype, const Shape& shape, uint32_t stream, double scale = 1.0) {
  Buffer buffer(dtype, shape);
  Doubles values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        scale * random_normal({.seed = 42, .purpose = Purpose::kInit, .stream = stream, .step = 0}, i);
  assign(buffer, values);
  return buffer;
}

inline Buffer zeros(DType dtype, const Shape& shape) {
  Buffer buffer(dtype, shape);
  assign(buffer, Doubles(static_cast<size_t>(shape.elements()), 0.0));
  return buffer;
}

// Half the distance between 1 and the next number: the relative error of one rounding.
inline double unit_roundoff(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

// Every |got - want| <= tolerance * max(1, |want|), where max(1, .) is scaled by `magnitude`.
inline void expect_close(const Tensor& got, const Doubles& want, double tolerance, const std::string& what,
                         double magnitude = 1.0) {
  const Doubles values = to_doubles(got);
  ASSERT_EQ(values.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    const double bound = tolerance * std::max(magnitude, std::abs(want[i]));
    ASSERT_TRUE(std::abs(values[i] - want[i]) <= bound)
        << what << "[" << i << "] = " << values[i] << ", want " << want[i] << " within " << bound;
  }
}

// Gradient of f at x by central differences in double; error O(h^2).
inline Doubles central_differences(const std::function<double(const Doubles&)>& f, Doubles x,
                                   double h = 1e-5) {
  Doubles gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double saved = x[i];
    x[i] = saved + h;
    const double above = f(x);
    x[i] = saved - h;
    const double below = f(x);
    x[i] = saved;
    gradient[i] = (above - below) / (2 * h);
  }
  return gradient;
}

inline double dot(const Doubles& a, const Doubles& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

}  // namespace ingot::testing
