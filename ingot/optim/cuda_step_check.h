// Decisions about a step that CUDA devices make themselves, so that the host does not wait between gradients
// and update: whether loss and norm are finite, and the clipping factor. Every rank writes what it knows as
// RankSums; ranks exchange these, and each judges all of them in rank order, so every rank gets the same
// bits. Defined in builds with CUDA.
#pragma once

#include <cstdint>

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot::cuda {

// True for one of the ranks that hold the same elements, or the same tokens; only that rank counts them.
struct RankCounts {
  bool squares = true, losses = true;
};

// RankSums holds the sums of one rank for a step.
struct RankSums {
  double squares;                         // sum over its gradients
  double loss;                            // sum over the micro-batches
  int64_t counted, correct;               // tokens
  int32_t counts_squares, counts_losses;  // RankCounts
};
inline constexpr int64_t kRankSumsBytes = sizeof(RankSums);

struct StepCheck {
  double norm;               // norm of all gradients, after the correction
  double loss;               // sum over all ranks
  int64_t counted, correct;  // sums over all ranks
  float factor;  // the update multiplies gradients by it; NaN: the update changes nothing (RuleStep::factor)
  int32_t is_bad;  // a loss or the norm was not finite, in this step or an earlier one
};
inline constexpr int64_t kStepCheckBytes = sizeof(StepCheck);

// own (kRankSumsBytes) u8 = the sum of parts, and the sums over the rows of `losses` (micros,
// kLossTotalsBytes) u8. parts (kSquareParts) f32 are added in double in the order of sum_of_parts.
void sum_step(const Tensor& own, const Tensor& parts, const Tensor& losses, RankCounts counts,
              Stream& stream);

// Computes the verdict of a step from ranks (count, kRankSumsBytes) u8. With the sums over the ranks that
// count them,
//   correction = grad_correction(expected_tokens, counted)
//   norm = correction * sqrt(squares)
//   factor = correction * clip_factor(norm, limit)
// The step is bad if the norm, or a number of any rank, is not finite. verdict is (kStepCheckBytes) u8. Its
// is_bad stays set once it is set, and the factor is NaN from then on.
void check_step(const Tensor& verdict, const Tensor& ranks, double expected_tokens, double limit,
                Stream& stream);

// Returns the sum of parts (kSquareParts), which it adds by repeated halving and overwrites.
double sum_of_parts(double* parts);

}  // namespace ingot::cuda
