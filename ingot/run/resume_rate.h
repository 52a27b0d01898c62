// ResumeRate describes the change of the learning rate where a run is resumed. Without a message, the user
// would not notice that the rate jumps up again when a run is made longer after its rate has fallen.
#pragma once

#include <string>

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

}  // namespace ingot
