#include "ingot/sweep/sweep_jobs.h"

#include <algorithm>
#include <set>

#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/memory/memory_plan.h"

namespace ingot {

SweepJobs plan_jobs(const SweepSpec& spec, const std::vector<SweepRun>& runs, int jobs, int threads,
                    const SweepMachine& machine) {
  SweepJobs plan;
  std::set<size_t> seen;
  for (const SweepRun& run : runs) {
    const RunConfig& config = run.config;
    if (!seen.insert(run.setting).second) continue;  // another seed of the same setting
    if (config.parallel.ranks() > 1)
      fail(ErrorKind::kUsage, "{}: a run of a sweep has one rank, not the {} of {}; leave parallel out",
           setting_text(spec, run), config.parallel.ranks(), config.parallel.to_string());
    const uint64_t bytes = plan_memory(config).host_bytes();
    plan.run_bytes = std::max(plan.run_bytes, bytes);
    if (bytes > machine.memory.bytes && !config.train.is_overcommitted)
      fail(ErrorKind::kMemory,
           "{}: a run needs {}, and {} has {}; make it smaller, or set train.overcommit=true",
           setting_text(spec, run), format_bytes(static_cast<double>(bytes)), machine.memory.source,
           format_bytes(static_cast<double>(machine.memory.bytes)));
  }
  const TrainConfig& train = runs.front().config.train;
  plan.threads = threads > 0 ? threads : static_cast<int>(train.threads);
  plan.jobs = jobs;
  if (jobs == 0) {
    const auto in_memory = static_cast<int>(
        std::min<uint64_t>(runs.size(), machine.memory.bytes / std::max<uint64_t>(plan.run_bytes, 1)));
    const int on_cores = plan.threads > 0 ? machine.cores / plan.threads : machine.cores;
    plan.jobs = train.device == Device::kCuda ? 1 : std::max(1, std::min(in_memory, on_cores));
  }
  if (plan.threads == 0) plan.threads = std::max(1, machine.cores / plan.jobs);
  return plan;
}

}  // namespace ingot
