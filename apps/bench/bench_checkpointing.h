// ingot bench checkpointing: prints its table.
#pragma once

#include "ingot/run/run.h"

namespace ingot {

void print_checkpointing(const CheckpointingBench& result, bool is_json);

}  // namespace ingot
