// ResumeRate describes the change of the learning rate where a run is resumed. Without a message, the user
// would not notice that the rate jumps up again when a run is made longer after its rate has fallen.
#pragma once

#include <string>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/config/run_plan.h"

namespace ingot {

struct ResumeRate {
  std::string text;  // "learning rate: 3.00e-04 at step 100, 1.75e-03 at step 101"
  bool is_jump =
      false;  // by more than a fifth, neither planned by the old schedule nor caused by another optimizer.lr
};

// before: the checkpoint's configuration. next: the position before the first resumed step. REQUIRES:
// next.step >= 1.
ResumeRate resume_rate(const RunConfig& before, const RunConfig& now, const RunPosition& next);

// Returns a warning if the highest rate of a run is above the last one with which the weights that it starts
// from were trained; "" otherwise, for weights that Ingot did not train, for another rule of the optimizer,
// and for adapters, which begin at 0.
std::string start_rate_warning(const StartWeights& start, const RunConfig& now);

}  // namespace ingot
