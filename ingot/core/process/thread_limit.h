// The number of threads that this machine runs for this process at the same time, and what limits it. More
// threads than that wait for each other at every barrier.
#pragma once

#include <sched.h>

#include <optional>
#include <string>
#include <vector>

#include "ingot/core/process/cgroups.h"

namespace ingot {

struct ThreadLimit {
  int threads = 1;     // at least 1
  std::string source;  // "the control group /job (cpu.max: 1.5 CPUs)"
};

// The processes of a job on this host, which divide its cores and its quota.
struct HostShare {
  int ranks = 1;
  int cores = 0;  // cores that any of the ranks may use; 0: those of this process
};

// The places that the limits are read from. They are the system's own unless a test replaces them.
struct CpuSources {
  CgroupFiles cgroups = {};
  std::optional<int> cores = {};    // online cores of the machine
  std::optional<int> allowed = {};  // by the affinity mask of this process
};

// Returns the smallest of three limits: the affinity mask, this rank's share of the host's cores, and its
// share of the CPU quotas of all control groups up to the root. A fraction of a CPU counts as one.
ThreadLimit machine_thread_limit(const HostShare& share = {}, const CpuSources& sources = {});

// The number of threads of this process as it was set last.
struct ThreadUse {
  ThreadLimit machine;  // the limit of the machine
  ThreadLimit chosen;   // the number in use, and its source
  int unbound = 1;      // threads that the machine would allow if no launcher had bound the process to cores
};
const ThreadUse& thread_use();

// Sets the number of threads to OMP_NUM_THREADS if the environment has it, otherwise to the limit of the
// machine. A program calls it before it computes; the ranks of a job call it again when they know each other.
void use_machine_threads(const HostShare& share = {});

// Sets the number of threads on behalf of `source`, a key of the configuration.
void use_threads_of(const std::string& source, int threads);

// Returns a warning if the process uses more threads than the machine allows, or fewer because mpirun has
// bound it to one core; otherwise "".
std::string thread_warning(const ThreadUse& use);

// Return the cores on which this process may run.
cpu_set_t affinity_mask();
std::vector<int> allowed_cpus();

}  // namespace ingot
