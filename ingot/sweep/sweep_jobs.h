// SweepJobs is the number of runs of a sweep that train at a time, and the number of threads of each.
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

// Returns the jobs of a sweep. jobs: the number that the user gave, or 0. threads: those of an earlier call,
// which are kept, or 0, which stands for train.threads. If jobs is 0, as many runs train at a time as there
// are cores and memory for; on a device, one. If the threads are then still 0, the cores are divided among
// the runs. Throws a kMemory error that names the setting if a run alone does not fit and train.overcommit is
// not set, and a kUsage error if a run needs several ranks.
SweepJobs plan_jobs(const SweepSpec& spec, const std::vector<SweepRun>& runs, int jobs, int threads,
                    const SweepMachine& machine);

}  // namespace ingot
