// Seam: the boundary of a region whose linears are sharded over ranks (tensor parallelism), and the little
// else that these ranks tell each other. Alone, all of it does nothing.
//
// A sublayer enters after its norm and leaves before its result joins the residual stream. Outside, a rank
// has n rows of the N tokens: all (n = N, and both tensors of a call are the same memory), or its part, with
// sequence parallelism. All ranks call alike, in the same order.
#pragma once

#include <string_view>

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

class Region {
 public:
  virtual ~Region() = default;

  // Forward: h (n, C) enters and is then all (N, C) everywhere; the ranks' partial (N, C) add up to out (n,
  // C).
  void enter(const Tensor& all, const Tensor& h, Stream& stream) { spread("enter", all, h, stream); }
  void leave(const Tensor& out, const Tensor& partial, Stream& stream) {
    collect("leave", out, partial, stream);
  }
  // Backward, mirrored: d_out arrives at leave, dh departs at enter.
  void leave_backward(const Tensor& d_all, const Tensor& d_out, Stream& stream) {
    spread("leave backward", d_all, d_out, stream);
  }
  void enter_backward(const Tensor& dh, const Tensor& d_partial, Stream& stream) {
    collect("enter backward", dh, d_partial, stream);
  }

  // t (f32) = the sum, the maximum over the ranks.
  virtual void sum([[maybe_unused]] std::string_view name, [[maybe_unused]] const Tensor& t,
                   [[maybe_unused]] Stream& stream) {}
  virtual void max([[maybe_unused]] std::string_view name, [[maybe_unused]] const Tensor& t,
                   [[maybe_unused]] Stream& stream) {}
  // all (count * n) = the ranks' own (n), in order of the ranks; own may lie at its place in all.
  virtual void gather([[maybe_unused]] std::string_view name, [[maybe_unused]] const Tensor& all,
                      [[maybe_unused]] const Tensor& own, [[maybe_unused]] Stream& stream) {}

 protected:
  // all = the ranks' rows, in order of the ranks.
  virtual void spread([[maybe_unused]] std::string_view name, [[maybe_unused]] const Tensor& all,
                      [[maybe_unused]] const Tensor& own, [[maybe_unused]] Stream& stream) {}
  // own = this rank's rows of the sum of the ranks' `partial`.
  virtual void collect([[maybe_unused]] std::string_view name, [[maybe_unused]] const Tensor& own,
                       [[maybe_unused]] const Tensor& partial, [[maybe_unused]] Stream& stream) {}
};

}  // namespace ingot
