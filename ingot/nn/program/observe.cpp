#include <algorithm>

#include "ingot/nn/primitives/linear.h"
#include "ingot/nn/program/passes.h"

namespace ingot {
namespace {

// Returns the output of an operation that is the value; -1 if none is.
int output_of(const Op& op, ValueId value) {
  const auto place = std::ranges::find(op.out, value);
  return place == op.out.end() ? -1 : static_cast<int>(place - op.out.begin());
}

}  // namespace

// Casts whose amax no operation raises read their tensor once more, 2 bytes per element. Those are the casts
// of w and of attention's output; of the gradient of v (and of q and k, unless only a rotation writes it) in
// linears without a bias; of gradients from outside the block with dropout or at the end of a pipeline's
// stage; and, on tensor-parallel ranks, all.
void observe_amaxes(Builder& builder) {
  if (!builder.spec().has_fp8 || !builder.spec().fuses_products()) return;
  std::vector<Op>& ops = builder.ops();
  for (size_t i = 0; i < ops.size(); ++i) {
    const int tensor = cast_tensor(ops[i]);
    if (tensor < 0) continue;
    const ValueId cast = ops[i].in[0];
    for (size_t j = i; j-- > 0;) {  // the last operation that touches the value
      const int out = output_of(ops[j], cast);
      const bool is_reader = sums_columns_of(ops[j], cast);
      if (out < 0 && !is_reader) continue;
      const bool is_raised = is_reader || ops[j].primitive->raises_amax(static_cast<size_t>(out));
      if (is_reader) {
        ops[j].amax.in = tensor;
      } else if (is_raised) {
        ops[j].amax.out = tensor;
        ops[j].amax.output = out;
      }
      if (is_raised) ops[i].amax.in = tensor;
      break;
    }
  }
}

}  // namespace ingot
