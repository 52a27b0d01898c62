#include "ingot/core/tensor.h"

namespace ingot {

Shape::Shape(std::initializer_list<int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  INGOT_CHECK(dims.size() <= kMaxRank, "Shape: at most {} dims, got {}", kMaxRank, dims.size());
  int i = 0;
  for (int64_t d : dims) {
    INGOT_CHECK(d >= 0, "Shape: dim {} must not be negative, got {}", i, d);
    dims_[static_cast<size_t>(i++)] = d;
  }
}

int64_t Shape::elements() const {
  int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<size_t>(i)];
  return n;
}

std::string Shape::to_string() const {
  std::string text = "(";
  for (int i = 0; i < rank_; ++i) text += fmt::format("{}{}", i ? ", " : "", (*this)[i]);
  return text + ")";
}

Tensor::Tensor(void* data, DType dtype, const Shape& shape, Device device)
    : data(data), dtype(dtype), device(device), shape(shape) {
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = stride;
    stride *= shape[i];
  }
}

bool Tensor::is_contiguous() const {
  int64_t stride = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[static_cast<size_t>(i)] != stride) return false;
    stride *= shape[i];
  }
  return true;
}

Tensor Tensor::reshape(const Shape& new_shape) const {
  INGOT_CHECK(is_contiguous(), "Tensor::reshape: {} is strided", shape.to_string());
  INGOT_CHECK(new_shape.elements() == elements(), "Tensor::reshape: {} to {}", shape.to_string(),
              new_shape.to_string());
  Tensor view(data, dtype, new_shape, device);
  view.amax = amax;
  return view;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  INGOT_CHECK(rank() >= 1 && 0 <= begin && begin <= end && end <= shape[0], "Tensor::rows: [{}, {}) of {}",
              begin, end, shape.to_string());
  Tensor view = *this;
  view.shape[0] = end - begin;
  view.data = static_cast<char*>(data) + static_cast<size_t>(begin * strides[0]) * size_bytes(dtype);
  return view;
}

Tensor Tensor::columns(int64_t begin, int64_t end) const {
  const int last = rank() - 1;
  INGOT_CHECK(rank() >= 1 && 0 <= begin && begin <= end && end <= shape[last],
              "Tensor::columns: [{}, {}) of {}", begin, end, shape.to_string());
  Tensor view = *this;
  view.shape[last] = end - begin;
  view.data = static_cast<char*>(data) + static_cast<size_t>(begin) * size_bytes(dtype);
  return view;
}

Tensor Tensor::split_last(int64_t a, int64_t b) const {
  const int last = rank() - 1;
  INGOT_CHECK(rank() >= 1 && rank() < Shape::kMaxRank && shape[last] == a * b,
              "Tensor::split_last: {} into {} x {}", shape.to_string(), a, b);
  Tensor view = *this;
  Shape split;
  switch (rank()) {
    case 1:
      split = {a, b};
      break;
    case 2:
      split = {shape[0], a, b};
      break;
    default:
      split = {shape[0], shape[1], a, b};
      break;
  }
  view.shape = split;
  view.strides[static_cast<size_t>(last)] = b;
  view.strides[static_cast<size_t>(last) + 1] = 1;
  return view;
}

Tensor Tensor::with_amax(const Tensor& place) const {
  if (place) check_tensor(place, DType::f32, {1}, "Tensor::with_amax: place");
  Tensor view = *this;
  view.amax = static_cast<float*>(place.data);
  return view;
}

void check_tensor(const Tensor& t, DType dtype, const Shape& shape, const char* what) {
  INGOT_CHECK(t.data != nullptr || shape.elements() == 0, "{} must be {} {}, got no tensor", what,
              name(dtype), shape.to_string());
  INGOT_CHECK(t.dtype == dtype, "{} must be {}, got {}", what, name(dtype), name(t.dtype));
  INGOT_CHECK(t.shape == shape, "{} must be {}, got {}", what, shape.to_string(), t.shape.to_string());
}

}  // namespace ingot
