// What a loss is reported by: sums over the rows that have a target.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

struct LossTotals {
  double loss;
  int64_t counted, correct;
};

inline constexpr int64_t kLossTotalsBytes = sizeof(LossTotals);

// sums (kLossTotalsBytes) u8 = of losses (N) f32 and is_correct (N) u8 (or absent) those whose target (N) i32
// is not kIgnoreIndex. In double, in an order that follows from N alone.
void loss_sums(const Tensor& sums, const Tensor& losses, const Tensor& is_correct, const Tensor& targets,
               Stream& stream);

// Of a tensor that the host can read.
LossTotals read_loss_sums(const Tensor& sums);

}  // namespace ingot
