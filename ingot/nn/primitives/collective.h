// The collectives of tensor parallelism, which appear in a list where two placements differ (nn/region.h).
#pragma once

#include "ingot/nn/program/builder.h"

namespace ingot {

// Returns the rows of all ranks of x; x itself if it is whole.
ValueId gather_rows(Builder& b, ValueId x);
// Returns the sum of a term over the ranks, as the residual stream lies on them; x itself if it is no term.
ValueId sum_to_stream(Builder& b, ValueId x);
// Returns the sum of a gradient's terms over the ranks: all of it, or the rank's rows.
ValueId enter_backward(Builder& b, ValueId term, Placement to);

// Fills a value with zeros, and returns it.
ValueId zeros(Builder& b, ValueId value);

// The gradient of a parameter that all ranks hold, while each rank has only a term of it.
class PartialGradient {
 public:
  // is_partial: false if the operation adds to the parameter's gradient itself. param: -1 for none; a frozen
  // one counts as none.
  PartialGradient(Builder& b, int param, int64_t elements, bool is_partial);
  ValueId value() const { return value_; }  // (elements) f32, zero; kNoValue if it is not partial
  // The parameter whose gradient the operation adds to itself.
  int direct() const { return value_ == kNoValue ? param_ : -1; }
  // Sums the terms and adds the sum to the parameter's gradient.
  void finish();

 private:
  Builder& b_;
  int param_;
  ValueId value_ = kNoValue;
};

}  // namespace ingot
