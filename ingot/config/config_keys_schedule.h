// The lines of the table of configuration keys that are about the course of a run: schedule, batch ramp and
// guard. For config_keys.cpp only.
#pragma once

#include <vector>

#include "ingot/config/config_keys.h"

namespace ingot {

void add_batch_ramp_key(std::vector<ConfigKey>& keys);  // of section train
void add_schedule_keys(std::vector<ConfigKey>& keys);
void add_guard_keys(std::vector<ConfigKey>& keys);

}  // namespace ingot
