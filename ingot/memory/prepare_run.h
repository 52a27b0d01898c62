// Fits a run to the memory of its machines, before anything of it is allocated. The program and the Python
// module start every run with it.
#pragma once

#include <string>

#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/memory/memory_check.h"

namespace ingot {

struct PreparedRun {
  RunConfig config;     // with a budget for activations (memory/activation_budget.h), and checkpoint.has_room
  std::string note;     // why checkpoints are not written concurrently with training; or ""
  std::string warning;  // the error that train.overcommit suppressed; or ""
};

// Throws a kMemory error if the run does not fit (check_memory). All ranks must call it; all get the same
// result.
PreparedRun prepare_run(RunConfig config, const Mesh& mesh, const MemoryLimits& limits);

}  // namespace ingot
