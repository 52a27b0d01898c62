// Seam: the boundary of a region whose linears may be sharded over ranks (tensor parallelism). A sublayer
// enters after its norm and leaves before its result joins the residual stream; alone, both do nothing.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

class Region {
 public:
  virtual ~Region() = default;
  // Forward: h (N, C) enters (replicated or gathered), out (N, C) leaves (to be summed or scattered).
  virtual void enter([[maybe_unused]] const Tensor& h, [[maybe_unused]] Stream& stream) {}
  virtual void leave([[maybe_unused]] const Tensor& out, [[maybe_unused]] Stream& stream) {}
  // Backward, mirrored: d_out arrives at leave, dh departs at enter.
  virtual void leave_backward([[maybe_unused]] const Tensor& d_out, [[maybe_unused]] Stream& stream) {}
  virtual void enter_backward([[maybe_unused]] const Tensor& dh, [[maybe_unused]] Stream& stream) {}
};

}  // namespace ingot
