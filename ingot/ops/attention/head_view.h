// HeadView is a (B,T,H,D) tensor for kernels: a pointer and the strides of all but the last dim.
#pragma once

#include "ingot/core/tensor.h"

namespace ingot {

template <typename T>
struct HeadView {
  T* data = nullptr;
  int64_t batch_stride = 0, time_stride = 0, head_stride = 0;  // elements

  // REQUIRES: t is (B,T,H,D) of dtype T with the last dim contiguous.
  explicit HeadView(const Tensor& t)
      : data(t.as<T>()), batch_stride(t.strides[0]), time_stride(t.strides[1]), head_stride(t.strides[2]) {}
  constexpr T* at(int64_t b, int64_t t, int64_t h) const {
    return data + b * batch_stride + t * time_stride + h * head_stride;
  }
};

// Throws unless t is (B,T,H,D) with the last dim contiguous; the message contains op and operand.
inline void check_heads(const Tensor& t, const char* op, const char* operand) {
  INGOT_CHECK(t && t.rank() == 4 && (t.dim(3) == 1 || t.strides[3] == 1),
              "{}: {} must be (B, T, H, D) with the last dim contiguous, got {}", op, operand,
              t ? t.shape.to_string() : "no tensor");
}

}  // namespace ingot
