// Sums of losses and correct predictions over the rows that have a target, for reporting the loss.
#pragma once

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

struct LossTotals {
  double loss;
  int64_t counted, correct;
};

inline constexpr int64_t kLossTotalsBytes = sizeof(LossTotals);

// Sums the rows whose target is not kIgnoreIndex. sums (kLossTotalsBytes) u8 receives a LossTotals;
// losses (N) f32, is_correct (N) u8 or absent, targets (N) i32. The loss is summed in double, in an
// order that follows from N only.
void loss_sums(const Tensor& sums, const Tensor& losses, const Tensor& is_correct, const Tensor& targets,
               Stream& stream);

// Decodes sums. REQUIRES: the host can read the tensor.
LossTotals read_loss_sums(const Tensor& sums);

}  // namespace ingot
