// Region is the interface for tensor parallelism. An operation of the list calls enter() after a norm and
// leave() before the output of half a block is added to the residual stream (primitives/collective.h);
// between the two the linears are sharded across ranks.
//
// Outside the region each rank holds n of the N token rows. Without sequence parallelism n == N and the
// two tensors of a call alias; with it, n == N / tp. On a single rank every function is a no-op. All ranks
// make the same calls in the same order.
#pragma once

#include <string_view>

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

class Region {
 public:
  virtual ~Region() = default;

  // Forward. enter: all (N, C) = the rows h (n, C) of all ranks. leave: out (n, C) = this rank's rows of
  // the sum of all ranks' partial (N, C).
  void enter(const Tensor& all, const Tensor& h, Stream& stream) { spread("enter", all, h, stream); }
  void leave(const Tensor& out, const Tensor& partial, Stream& stream) {
    collect("leave", out, partial, stream);
  }
  // Backward, mirrored: leave_backward takes d_out into the region, enter_backward takes dh out of it.
  void leave_backward(const Tensor& d_all, const Tensor& d_out, Stream& stream) {
    spread("leave backward", d_all, d_out, stream);
  }
  void enter_backward(const Tensor& dh, const Tensor& d_partial, Stream& stream) {
    collect("enter backward", dh, d_partial, stream);
  }

  // t (f32) = its sum, or its maximum, over the ranks.
  virtual void sum([[maybe_unused]] std::string_view name, [[maybe_unused]] const Tensor& t,
                   [[maybe_unused]] Stream& stream) {}
  virtual void max([[maybe_unused]] std::string_view name, [[maybe_unused]] const Tensor& t,
                   [[maybe_unused]] Stream& stream) {}
  // all (count * n) = the ranks' own (n), in rank order; own may alias its slice of all.
  virtual void gather([[maybe_unused]] std::string_view name, [[maybe_unused]] const Tensor& all,
                      [[maybe_unused]] const Tensor& own, [[maybe_unused]] Stream& stream) {}

 protected:
  // all = the ranks' rows, in rank order (all-gather).
  virtual void spread([[maybe_unused]] std::string_view name, [[maybe_unused]] const Tensor& all,
                      [[maybe_unused]] const Tensor& own, [[maybe_unused]] Stream& stream) {}
  // own = this rank's rows of the sum of the ranks' `partial` (reduce-scatter, or all-reduce if n == N).
  virtual void collect([[maybe_unused]] std::string_view name, [[maybe_unused]] const Tensor& own,
                       [[maybe_unused]] const Tensor& partial, [[maybe_unused]] Stream& stream) {}
};

}  // namespace ingot
