// SweepJobs says how many runs of a sweep train at a time, and which part of the machine each of them gets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/core/process/child_program.h"
#include "ingot/memory/memory_limit.h"
#include "ingot/sweep/sweep_spec.h"

namespace ingot {

struct SweepJobs {
  int jobs = 1;
  int threads = 1;         // that each rank of a run uses
  int ranks = 1;           // the most that a run has
  uint64_t run_bytes = 0;  // planned memory of the largest run, all its ranks together
  // The place of each job. A run has GPUs of its own while there are enough, and cores of its own if the runs
  // use all cores.
  std::vector<ChildPlace> places = {};
};

struct SweepMachine {
  int cores = 1;  // that this process may keep busy
  MemoryLimit memory = {};
  std::vector<int> cpus = {};          // on which it may run
  std::vector<std::string> gpus = {};  // as in CUDA_VISIBLE_DEVICES
};

// Returns the jobs of a sweep. jobs: the number that the user gave, or 0. threads: those of an earlier call,
// which are kept, or 0, which stands for train.threads. If jobs is 0, as many runs train at a time as there
// are cores and memory for; on devices, as many as there are GPUs for. If the threads are then still 0, the
// cores are divided among the ranks of the runs. Throws a kMemory error that names the setting if a run alone
// does not fit and train.overcommit is not set, and a kUsage error if a run has more ranks than there are
// GPUs.
SweepJobs plan_jobs(const SweepSpec& spec, const std::vector<SweepRun>& runs, int jobs, int threads,
                    const SweepMachine& machine);

}  // namespace ingot
