// How many runs of a sweep train at a time, and with how many threads each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/memory/memory_limit.h"
#include "ingot/sweep/sweep_spec.h"

namespace ingot {

struct SweepJobs {
  int jobs = 1, threads = 1;
  uint64_t run_bytes = 0;  // planned memory of the largest run
};

struct SweepMachine {
  int cores = 1;
  MemoryLimit memory;
};

// jobs: as the user asked, or 0. threads: those of an earlier call, which stay, or 0. Without either, as many runs
// train as there are cores and memory for, and the cores are divided among them; train.threads, if set, is the number
// of threads of each. Runs on a device take turns. kMemory error that names the setting if a run alone does not fit and
// train.overcommit is not set; kUsage error if a run needs several ranks.
SweepJobs plan_jobs(const SweepSpec& spec, const std::vector<SweepRun>& runs, int jobs, int threads,
                    const SweepMachine& machine);

}  // namespace ingot
