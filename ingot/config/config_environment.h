// add_environment() reads the settings of a machine from the environment.
#pragma once

#include "ingot/config/config_toml.h"

namespace ingot {

// Adds INGOT_TRAIN_DEVICE, INGOT_TRAIN_THREADS, INGOT_DATA_WORKERS and INGOT_DATA_PREFETCH as if --set had
// named their keys. Throws a kUsage error for a variable that names another key (INGOT_TRAIN_STEPS), because
// the environment must not change the result of a run. Other variables are ignored.
void add_environment(ConfigBuilder& builder);

}  // namespace ingot
