// ingot bench checkpointing: prints its table.
#pragma once

#include "ingot/profile/bench_checkpointing.h"

namespace ingot {

void print_checkpointing(const CheckpointingBench& result, bool is_json);

}  // namespace ingot
