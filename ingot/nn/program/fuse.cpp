#include <utility>

#include "ingot/nn/primitives/elementwise.h"
#include "ingot/nn/primitives/linear.h"
#include "ingot/nn/primitives/norm.h"
#include "ingot/nn/program/passes.h"

namespace ingot {

// A product that adds the residual stream spares the next norm one tensor read and one written. With dropout
// and with tensor parallelism the norm adds instead; with norms after the halves of a block the addition
// stays an operation.
void fuse(Builder& builder, bool adds_in_products) {
  std::vector<Op> ops = std::exchange(builder.ops(), {});
  std::vector<int> readers(builder.values().size());
  for (const Op& op : ops)
    for (const ValueId id : op.in)
      if (id != kNoValue) ++readers[static_cast<size_t>(id)];
  const bool fuses_products = builder.spec().fuses_products();
  size_t next = 0;
  const auto has = [&](size_t count) { return next + count <= ops.size(); };
  while (has(1)) {
    Op& op = builder.ops().emplace_back(std::move(ops[next++]));
    if (fuses_products && has(1) && takes_bias(op, ops[next])) ++next;
    const bool has_one_reader = has(1) && readers[static_cast<size_t>(ops[next].out[0])] == 1;
    if (fuses_products && has(2) && has_one_reader && takes_gelu(op, ops[next], ops[next + 1])) ++next;
    if (!has(1) || !is_add(ops[next])) continue;
    const ValueId x = ops[next].in[0], delta = ops[next].in[1], sum = ops[next].out[0];
    if (fuses_products && adds_in_products && op.out[0] == delta &&
        readers[static_cast<size_t>(delta)] == 1 && takes_addition(op, x, sum)) {
      ++next;
    } else if (has(2) && is_norm(ops[next + 1]) && ops[next + 1].in[0] == sum) {
      ops[next + 1] = with_addition(ops[next + 1], x, delta, sum);
      ++next;
    }
  }
}

}  // namespace ingot
