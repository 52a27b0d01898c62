#include "tests/reference/numeric.h"

namespace ingot::test {

double element(const Tensor& t, size_t i) {
  if (t.dtype == DType::bf16) return static_cast<double>(static_cast<float>(t.as<bf16>()[i]));
  if (t.dtype == DType::f16) return static_cast<double>(static_cast<float>(t.as<f16>()[i]));
  return static_cast<double>(t.as<float>()[i]);
}

void set_element(const Tensor& t, size_t i, double value) {
  if (t.dtype == DType::bf16)
    t.as<bf16>()[i] = bf16(static_cast<float>(value));
  else if (t.dtype == DType::f16)
    t.as<f16>()[i] = f16(static_cast<float>(value));
  else
    t.as<float>()[i] = static_cast<float>(value);
}

Doubles to_doubles(const Tensor& t) {
  Doubles values(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element(t, i);
  return values;
}

void assign(const Tensor& t, const Doubles& values) {
  ASSERT_EQ(static_cast<size_t>(t.elements()), values.size());
  for (size_t i = 0; i < values.size(); ++i) set_element(t, i, values[i]);
}

Buffer random_tensor(DType dtype, const Shape& shape, uint32_t stream, double scale) {
  Buffer buffer(dtype, shape);
  Doubles values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        scale * random_normal({.seed = 42, .purpose = Purpose::kInit, .stream = stream, .step = 0}, i);
  assign(buffer, values);
  return buffer;
}

Buffer zeros(DType dtype, const Shape& shape) {
  Buffer buffer(dtype, shape);
  assign(buffer, Doubles(static_cast<size_t>(shape.elements()), 0.0));
  return buffer;
}

void expect_close(const Tensor& got, const Doubles& want, double tolerance, const std::string& what,
                  double magnitude) {
  const Doubles values = to_doubles(got);
  ASSERT_EQ(values.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    const double bound = tolerance * std::max(magnitude, std::abs(want[i]));
    ASSERT_TRUE(std::abs(values[i] - want[i]) <= bound)
        << what << "[" << i << "] = " << values[i] << ", want " << want[i] << " within " << bound;
  }
}

Doubles central_differences(const std::function<double(const Doubles&)>& f, Doubles x, double h) {
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

double dot(const Doubles& a, const Doubles& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

}  // namespace ingot::test
