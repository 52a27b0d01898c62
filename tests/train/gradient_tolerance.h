#pragma once

#include <algorithm>
#include <cmath>

#include "ingot/config/config.h"
#include "tests/reference/numeric.h"

namespace ingot {

// Returns how far apart, relative to its size, rounding may take the gradient of a parameter in two trainings
// of a model, in different layouts or on different devices: k * eps * sqrt(n), as RMS over its elements.
//   eps  The unit roundoff of the coarsest format to which results are rounded.
//   n    The roundings between a parameter and its gradient. Each adds a relative error of its own, so their
//        squares add up. A block rounds some 10 results on its longest path and backward as many; the errors
//        of the other blocks, of which each has a part of the residual stream, count as those of one more
//        block. So n = 40. In f32 every addition to a sum is a rounding, and the longest sums have a term per
//        token. In FP8 only the operands of products matter: in both blocks two e4m3 activations and two e5m2
//        gradients, and one of each in the head; e5m2 has twice the eps, so it counts four times: n = 5 + 4 *
//        5.
//   k    The RMS of a rounding is 0.4 eps (evenly distributed mantissas), and two trainings that round
//        independently differ by sqrt(2) times that, 0.57 eps. k = 1 allows for parameters with few elements.
inline double gradient_tolerance(const RunConfig& c) {
  constexpr double kF8e4m3 = 0x1p-4;
  const double tokens = static_cast<double>(c.train.batch_size * c.train.grad_accum * c.model.context);
  if (c.precision.fp8.recipe != Fp8Recipe::kNone || c.head.precision == HeadPrecision::kFp8)
    return kF8e4m3 * std::sqrt(25);
  const double f32 = test::unit_roundoff(DType::f32) * std::sqrt(40 * tokens);
  double eps = 0;
  for (const DType dtype :
       {c.precision.compute, c.parallel.payload, c.parallel.payload_ends.value_or(c.parallel.payload)})
    if (dtype != DType::f32) eps = std::max(eps, test::unit_roundoff(dtype));
  return std::max(f32, eps * std::sqrt(40));
}

// Returns how far apart, in nats, rounding may take the losses of the first steps.
// fall: the largest change of the loss in these steps.
//
// The logits of an untrained model are below 1/4. Their errors, of gradient_tolerance(), differ from token to
// token, so the mean over the tokens has one over their square root. An update has errors in the directions
// of all its elements, of which a parameter has 64 or more: that along the gradient, which changes the fall,
// is 1/8 of it; k = 2. States in 8 bits: an error e moves a value past the border of two codes, which are s =
// 1/8 of it apart, with the probability e / s, and then by s; the RMS is sqrt(e * s). Both losses, below 8
// nats, are rounded to their format.
inline double loss_tolerance(const RunConfig& c, double fall) {
  const double tokens = static_cast<double>(c.train.batch_size * c.train.grad_accum * c.model.context);
  const double error = gradient_tolerance(c);
  const double of_update = c.optimizer.rule.kind == "adamw8bit" ? std::sqrt(error / 8) : error;
  const DType loss = c.head.loss_dtype == LossDtype::kBf16 ? DType::bf16 : DType::f32;
  return (error / std::sqrt(tokens) + fall * of_update) / 4 + 2 * 8 * test::unit_roundoff(loss);
}

// Returns how far apart, relative to its size, rounding may take the norm of a gradient after some steps of a
// rule like Adam's. Such a rule moves all elements equally far, also those whose sign an error e decides, a
// fraction e of them: the RMS error of an update is 2 * sqrt(e), and a few steps move the weights by half
// their size. A norm changes by the error along the gradient, at most a quarter (32 elements, k = 1.4).
inline double later_norm_tolerance(const RunConfig& c) { return std::sqrt(gradient_tolerance(c)) / 4; }

// loss_tolerance() for later steps, whose gradients have the errors of moved weights.
inline double later_loss_tolerance(const RunConfig& c, double fall) {
  return loss_tolerance(c, fall) + fall * later_norm_tolerance(c);
}

// A scalar's gradient is one sum over all rows, in which most of the terms cancel: the norms of a model do
// not see the size of the residual stream. Its error is up to 64 times as large as that of a matrix.
inline constexpr double kScalarCancellation = 256;

}  // namespace ingot
