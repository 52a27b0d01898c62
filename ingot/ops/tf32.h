// TF32 mode: whether f32 products on a CUDA stream may round their operands to TF32 (10 mantissa bits),
// which tensor cores multiply. It is off by default and has no effect on the CPU.
#pragma once

#include "ingot/core/stream.h"

namespace ingot {

void allow_tf32(Stream& stream, bool is_allowed);
bool allows_tf32(Stream& stream);

// Forbids TF32 on the stream during its lifetime.
class ExactProducts {
 public:
  explicit ExactProducts(Stream& stream) : stream_(stream), was_allowed_(allows_tf32(stream)) {
    allow_tf32(stream, false);
  }
  ~ExactProducts() { allow_tf32(stream_, was_allowed_); }
  ExactProducts(const ExactProducts&) = delete;
  ExactProducts& operator=(const ExactProducts&) = delete;

 private:
  Stream& stream_;
  bool was_allowed_;
};

}  // namespace ingot
