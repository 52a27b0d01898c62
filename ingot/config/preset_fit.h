// A preset's schedule follows the run: where a user makes a preset's run shorter, or measures its length in
// another unit, the values that the preset gave and that no longer fit are changed with it. What the user
// gave is never changed; if it contradicts the run, RunConfig::validate() refuses it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/config/config.h"

namespace ingot {

// Changes `config`, whose values started from `preset`'s. is_from_preset(key) says that the key's value is
// still the preset's; is_from_user(key) that the user gave it. Returns a sentence for every change, with the
// key, the old value and the new one.
//   train.max_tokens and train.max_time give way to a length that the user gave (train.steps, or each other).
//   schedule.warmup_steps, warmup_tokens, cooldown_steps and decay_steps, the counts of schedule.phases and
//   schedule.momentum, and train.batch_ramp are scaled with the run's length where they do not fit it.
//   Stages of train.batch_ramp that reach train.grad_accum are left out.
std::vector<std::string> fit_preset(RunConfig& config, const RunConfig& preset,
                                    const std::function<bool(std::string_view key)>& is_from_preset,
                                    const std::function<bool(std::string_view key)>& is_from_user);

}  // namespace ingot
