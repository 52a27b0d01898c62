#include "ingot/sweep/sweep_jobs.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/memory/memory_plan.h"
#include "ingot/parallel/parallelize.h"

namespace ingot {
namespace {

// Returns the host memory of all ranks of a run.
uint64_t host_bytes(const RunConfig& config) {
  uint64_t bytes = 0;
  for (int rank = 0; rank < static_cast<int>(config.parallel.ranks()); ++rank)
    bytes += plan_memory(config, mesh_shape(config.parallel), rank).host_bytes();
  return bytes;
}

// Throws if the machine has too little memory or too few GPUs for a run alone.
void require_room(const SweepSpec& spec, const SweepRun& run, uint64_t bytes, const SweepMachine& machine) {
  const RunConfig& config = run.config;
  if (bytes > machine.memory.bytes && !config.train.is_overcommitted)
    fail(ErrorKind::kMemory,
         "{}: a run needs {}, and {} has {}; make it smaller, or set train.overcommit=true",
         setting_text(spec, run), format_bytes(static_cast<double>(bytes)), machine.memory.source,
         format_bytes(static_cast<double>(machine.memory.bytes)));
  const auto ranks = static_cast<size_t>(config.parallel.ranks());
  if (config.train.device == Device::kCuda && ranks > machine.gpus.size())
    fail(ErrorKind::kUsage, "{}: a run has {} ranks ({}), and this machine has {} GPU{}",
         setting_text(spec, run), ranks, config.parallel.to_string(), machine.gpus.size(),
         machine.gpus.size() == 1 ? "" : "s");
}

// Gives each job the GPUs after those of the job before; jobs share GPUs if there are too few.
void divide_gpus(SweepJobs& plan, const std::vector<std::string>& gpus) {
  size_t next = 0;
  for (ChildPlace& place : plan.places) {
    std::string list;
    for (int rank = 0; rank < plan.ranks; ++rank) list += (rank > 0 ? "," : "") + gpus[next++ % gpus.size()];
    place.environment.push_back("CUDA_VISIBLE_DEVICES=" + list);
  }
}

// A sweep that leaves cores free leaves the choice of cores to the system, because other programs may use
// some of them.
void divide_cpus(SweepJobs& plan, const std::vector<int>& cpus) {
  const size_t each = static_cast<size_t>(plan.ranks) * static_cast<size_t>(plan.threads);
  if (plan.jobs == 1 || each * plan.places.size() != cpus.size()) return;
  for (size_t job = 0; job < plan.places.size(); ++job) {
    const auto first = cpus.begin() + static_cast<int64_t>(job * each);
    plan.places[job].cpus.assign(first, first + static_cast<int64_t>(each));
  }
}

}  // namespace

SweepJobs plan_jobs(const SweepSpec& spec, const std::vector<SweepRun>& runs, int jobs, int threads,
                    const SweepMachine& machine) {
  SweepJobs plan;
  std::set<size_t> seen;
  for (const SweepRun& run : runs) {
    if (!seen.insert(run.setting).second) continue;  // another seed of the same setting
    const uint64_t bytes = host_bytes(run.config);
    require_room(spec, run, bytes, machine);
    plan.run_bytes = std::max(plan.run_bytes, bytes);
    plan.ranks = std::max(plan.ranks, static_cast<int>(run.config.parallel.ranks()));
  }
  const TrainConfig& train = runs.front().config.train;
  const bool is_on_device = train.device == Device::kCuda;
  plan.threads = threads > 0 ? threads : static_cast<int>(train.threads);
  plan.jobs = jobs;
  if (jobs == 0) {
    const auto in_memory = static_cast<int>(
        std::min<uint64_t>(runs.size(), machine.memory.bytes / std::max<uint64_t>(plan.run_bytes, 1)));
    const int on_cores = machine.cores / (plan.ranks * std::max(plan.threads, 1));
    const int on_gpus = static_cast<int>(machine.gpus.size()) / plan.ranks;
    plan.jobs = std::max(1, std::min(in_memory, is_on_device ? on_gpus : on_cores));
  }
  if (plan.threads == 0) plan.threads = std::max(1, machine.cores / (plan.jobs * plan.ranks));
  plan.places.resize(static_cast<size_t>(plan.jobs));
  if (is_on_device)
    divide_gpus(plan, machine.gpus);
  else
    divide_cpus(plan, machine.cpus);
  return plan;
}

}  // namespace ingot
