// Defines the configuration keys of the schedule, the batch ramp and the guard. Only config_keys.cpp
// includes this.
#pragma once

#include <vector>

#include "ingot/config/config_keys.h"

namespace ingot {

void add_batch_ramp_key(std::vector<ConfigKey>& keys);  // a key of section train
void add_schedule_keys(std::vector<ConfigKey>& keys);
void add_guard_keys(std::vector<ConfigKey>& keys);

}  // namespace ingot
