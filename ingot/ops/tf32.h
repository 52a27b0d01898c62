// tf32: whether products of f32 on a CUDA stream may round their operands to its 10 bits, which tensor cores
// multiply. They may not unless they are told to; on the CPU it means nothing.
#pragma once

#include "ingot/core/stream.h"

namespace ingot {

void allow_tf32(Stream& stream, bool is_allowed);
bool allows_tf32(Stream& stream);

// While it lives, they may not.
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
