#include "ingot/nn/layer.h"

#include "ingot/ops/int8_matrix.h"
#include "ingot/ops/row_sum.h"

namespace ingot {

Tensor alloc_sums(Arena& arena, int64_t C) {
  return arena.alloc(DType::f32, {row_sum_parts(arena.device()), C});
}

WeightGradient weight_gradient(LayerContext& ctx, int id) {
  return {ctx.params.grad(id), !ctx.overwrites_gradients};
}

void multiply_by_weight(LayerContext& ctx, const Tensor& y, const Tensor& x, int id) {
  if (const Int8Matrix* codes = ctx.params.int8_weight(id))
    return int8_matmul(y, x, *codes, ctx.params.int8_room(), ctx.stream);
  matmul(y, x, ctx.params.weight(id), MatmulForm::kNT, false, ctx.stream);
}

RandomKey dropout_key(const DropoutState& state, uint32_t site) {
  return {.seed = state.seed, .purpose = Purpose::kDropout, .stream = site, .step = state.step};
}

}  // namespace ingot
