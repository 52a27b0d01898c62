// What the learning rate does where a run is resumed: a run that is made longer after its rate has fallen would
// otherwise jump back up without a word.
#pragma once

#include <string>

#include "ingot/config/run_plan.h"

namespace ingot {

struct ResumeRate {
  std::string text;  // "learning rate: 3.00e-04 at step 100, 1.75e-03 at step 101"
  bool is_jump =
      false;  // it changes by a fifth or more, and neither the schedule as it was nor another optimizer.lr says so
};

// before: the checkpoint's configuration. next: the position before the first resumed step. REQUIRES: next.step >= 1.
ResumeRate resume_rate(const RunConfig& before, const RunConfig& now, const RunPosition& next);

}  // namespace ingot
