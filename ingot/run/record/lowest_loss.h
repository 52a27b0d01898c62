// LowestLoss holds the lowest loss (of the text that eval.best_by names) among the regular evaluations, which
// follow every eval.every steps. An interrupted run evaluates at other steps too. These evaluations do not
// count, so that eval.patience ends the run at the same step as without the interruption.
#pragma once

#include <cstdint>
#include <limits>

namespace ingot {

struct LowestLoss {
  double loss = std::numeric_limits<double>::infinity();
  int64_t evaluations_since = 0;  // evaluations after the lowest
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
