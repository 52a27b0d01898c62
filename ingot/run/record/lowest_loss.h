// LowestLoss follows the loss that eval.best_by names through the regular evaluations, those after every
// eval.every steps. A run that is interrupted makes further ones, which do not count, so that it ends at the
// same step as one that is not (eval.patience).
#pragma once

#include <cstdint>
#include <limits>

namespace ingot {

struct LowestLoss {
  double loss = std::numeric_limits<double>::infinity();
  int64_t evaluations_since = 0;  // evaluations after it
  int64_t step = -1;              // the last evaluation's step

  // Adds the evaluation after `at` steps. A resumed run may repeat the last one, which counts once.
  void add(int64_t at, double next, int64_t every) {
    if (every == 0 || at % every != 0 || at == step) return;
    step = at;
    evaluations_since = next < loss ? 0 : evaluations_since + 1;
    if (next < loss) loss = next;
  }
};

}  // namespace ingot
