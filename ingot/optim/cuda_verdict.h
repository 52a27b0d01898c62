// What a CUDA device decides about a step by itself, so that nobody waits between its gradients and its
// update: whether they are finite, and what clipping multiplies them by. Defined in builds with CUDA.
#pragma once

#include <cstdint>

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot::cuda {

struct StepVerdict {
  double norm;     // of all gradients, after the correction
  float factor;    // what an update multiplies gradients by; NaN: it changes nothing (RuleStep::factor)
  int32_t is_bad;  // a loss or the norm was not finite, in this step or one before it
};
inline constexpr int64_t kStepVerdictBytes = sizeof(StepVerdict);

// With loss, counted the sums over the micro-batches' rows of `sums` (micros, kLossTotalsBytes) u8,
// correction = expected_tokens / max(1, counted) and
//   norm = correction * sqrt(sum of parts);  factor = correction * min(1, limit / (norm + 1e-6)), limit 0: no
//   clipping.
// verdict (kStepVerdictBytes) u8; its is_bad stays once it is set, and the factor is NaN from then on. parts
// (kSquareParts) f32 are added in double in the order of sum_of_parts.
void judge_step(const Tensor& verdict, const Tensor& parts, const Tensor& sums, double expected_tokens,
                double limit, Stream& stream);

// parts (kSquareParts), which it overwrites: in halves.
double sum_of_parts(double* parts);

}  // namespace ingot::cuda
