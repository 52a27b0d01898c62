// Decisions about a step that a CUDA device makes itself, so that the host does not wait between gradients
// and update: whether loss and norm are finite, and the clipping factor. Defined in builds with CUDA.
#pragma once

#include <cstdint>

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot::cuda {

struct StepCheck {
  double norm;   // norm of all gradients, after the correction
  float factor;  // the update multiplies gradients by it; NaN: the update changes nothing (RuleStep::factor)
  int32_t is_bad;  // a loss or the norm was not finite, in this step or an earlier one
};
inline constexpr int64_t kStepCheckBytes = sizeof(StepCheck);

// Computes the verdict of a step. With loss and counted the sums over the micro-batches' rows of `sums`
// (micros, kLossTotalsBytes) u8,
//   correction = grad_correction(expected_tokens, counted)
//   norm = correction * sqrt(sum of parts)
//   factor = correction * clip_factor(norm, limit)
// verdict is (kStepCheckBytes) u8. Its is_bad stays set once it is set, and the factor is NaN from then
// on. parts (kSquareParts) f32 are added in double in the order of sum_of_parts.
void check_step(const Tensor& verdict, const Tensor& parts, const Tensor& sums, double expected_tokens,
                double limit, Stream& stream);

// Returns the sum of parts (kSquareParts), which it adds by repeated halving and overwrites.
double sum_of_parts(double* parts);

}  // namespace ingot::cuda
