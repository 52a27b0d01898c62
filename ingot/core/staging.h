// Staging: the host's way to tensors that may lie on a device, through pinned memory of its own. On the CPU
// nothing is copied.
#pragma once

#include <optional>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

class Staging {
 public:
  // What t (contiguous) holds, where the host can read it: t itself, or a copy. Waits for the stream. A copy
  // is valid until the next call of any of these.
  Tensor read(const Tensor& t, Stream& stream);
  // Where the host may write what t is to hold: t itself, or memory that write() brings there.
  Tensor room(const Tensor& t);
  // t = what was written to room(t). Waits.
  void write(const Tensor& t, Stream& stream);

 private:
  std::optional<Arena> arena_;  // pinned; as large as the largest tensor so far
};

}  // namespace ingot
