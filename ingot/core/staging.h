// Staging gives the host access to tensors that may lie on a device, through its own pinned buffer.
// Nothing is copied on the CPU.
#pragma once

#include <optional>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

class Staging {
 public:
  // Returns the contents of t in host memory: t itself on the CPU, otherwise a copy, after blocking until the
  // stream is done. The next call of any of these functions invalidates the copy. REQUIRES: t is contiguous.
  Tensor read(const Tensor& t, Stream& stream);
  // Returns host memory for the new contents of t: t itself on the CPU, otherwise a buffer that write()
  // copies to t.
  Tensor room(const Tensor& t);
  // t = what the caller wrote to room(t). Blocks until the copy is done.
  void write(const Tensor& t, Stream& stream);

 private:
  std::optional<Arena> arena_;  // pinned; at least as large as the largest tensor so far
};

}  // namespace ingot
