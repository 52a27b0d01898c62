// Adapts a preset's schedule to the run. If a user makes a preset's run shorter, or measures its length
// in another unit, the preset's values that no longer fit are changed. Values that the user gave are
// never changed; if they contradict the run, RunConfig::validate() refuses them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/config/config.h"

namespace ingot {

// Changes `config`, which started from `preset`. is_from_preset(key) returns true if the key's value is
// still the preset's, is_from_user(key) if the user gave it. Returns one sentence per change, with the
// key, the old value and the new one.
//   train.max_tokens and train.max_time are unset if the user gave another length
//   (train.steps, or one of these two).
//   schedule.warmup_steps, warmup_tokens, cooldown_steps, decay_steps and decay_tokens, the counts of
//   schedule.phases and schedule.momentum, and train.batch_ramp are scaled with the run's length if they do
//   not fit it. Stages of train.batch_ramp with train.grad_accum or more micro-batches are removed.
std::vector<std::string> fit_preset(RunConfig& config, const RunConfig& preset,
                                    const std::function<bool(std::string_view key)>& is_from_preset,
                                    const std::function<bool(std::string_view key)>& is_from_user);

}  // namespace ingot
