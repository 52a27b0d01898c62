// Tensor: a non-owning view of memory with dtype, shape and strides. Row-major unless strided.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "ingot/core/dtype.h"
#include "ingot/core/error.h"

namespace ingot {

// Up to four dimensions; rank 0 is a scalar of one element.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return dims_[static_cast<size_t>(i)]; }
  int64_t elements() const;
  bool operator==(const Shape& other) const = default;
  std::string to_string() const;  // "(2, 3, 768)"

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

enum class Device : uint8_t { kCpu, kCuda };

constexpr std::string_view name(Device device) { return device == Device::kCuda ? "cuda" : "cpu"; }

struct Tensor {
  void* data = nullptr;  // borrowed
  DType dtype = DType::f32;
  Device device = Device::kCpu;
  Shape shape;
  std::array<int64_t, Shape::kMaxRank> strides{};  // in elements
  float* amax = nullptr;                           // see with_amax; views keep it

  Tensor() = default;
  // Creates a contiguous view of `data`.
  Tensor(void* data, DType dtype, const Shape& shape, Device device = Device::kCpu);

  // Returns false for a default-constructed Tensor, which stands for an absent optional operand (no bias,
  // no weight).
  explicit operator bool() const { return data != nullptr; }

  int rank() const { return shape.rank(); }
  int64_t dim(int i) const { return shape[i]; }
  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_bytes(dtype); }
  bool is_contiguous() const;

  // Typed pointer to the first element. REQUIRES: T is the dtype.
  template <typename T>
  T* as() const {
    INGOT_CHECK(dtype_of<T> == dtype, "Tensor::as: tensor is {}, asked for {}", name(dtype),
                name(dtype_of<T>));
    return static_cast<T*>(data);
  }

  // The same elements under another shape. REQUIRES: contiguous, equal element count.
  Tensor reshape(const Shape& new_shape) const;
  // Rows [begin, end) of dim 0.
  Tensor rows(int64_t begin, int64_t end) const;
  // Columns [begin, end) of the last dim; the result is strided.
  Tensor columns(int64_t begin, int64_t end) const;
  // Splits the last dim n = a*b into (..., a, b), keeping strides: (B,T,C) -> (B,T,H,D).
  Tensor split_last(int64_t a, int64_t b) const;
  // Returns the same tensor with `place` (1) f32 to store its largest magnitude (amax); an empty `place`
  // means none. On a CUDA device, an op whose header documents it raises the amax to the largest magnitude
  // that it writes to the tensor (or reads from it), ignoring NaN. The FP8 cast of the tensor uses the amax.
  // Ops on the CPU do not change it.
  Tensor with_amax(const Tensor& place) const;
};

// Throws unless t has the dtype and shape. `what` names the op and the operand ("rmsnorm_forward: w").
void check_tensor(const Tensor& t, DType dtype, const Shape& shape, const char* what);

}  // namespace ingot
