#include "ingot/core/process/thread_limit.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "ingot/core/parallel.h"

namespace ingot {
namespace {

constexpr int kMaxThreads = 256;  // RowSum takes no more

ThreadUse& use_of_process() {
  static ThreadUse use;
  return use;
}

// Returns the CPUs that a group may use, or nullopt if it has no quota ("max", -1).
std::optional<double> quota_of(const Cgroup& group) {
  double quota = 0, period = 0;
  if (group.version == 2) {
    std::ifstream in(group.folder / "cpu.max");
    if (!(in >> quota >> period)) return std::nullopt;
  } else {
    std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group.folder / "cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

int share_of(double cpus, int ranks) {
  return std::max(1, static_cast<int>(std::ceil(std::min(cpus, 1e6))) / ranks);
}

}  // namespace

cpu_set_t affinity_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) CPU_ZERO(&mask);
  return mask;
}

std::vector<int> allowed_cpus() {
  const cpu_set_t mask = affinity_mask();
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  return cpus;
}

ThreadLimit machine_thread_limit(const HostShare& share, const CpuSources& sources) {
  const cpu_set_t mask = affinity_mask();
  const int all = sources.cores.value_or(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  const int own = sources.allowed.value_or(CPU_COUNT(&mask));
  ThreadLimit limit{.threads = std::max(1, all),
                    .source = fmt::format("{} of this machine", all == 1 ? "the core" : "the cores")};
  const auto tighten = [&](int threads, const std::string& source) {
    if (threads < limit.threads) limit = {.threads = std::max(1, threads), .source = source};
  };
  if (own > 0) tighten(own, fmt::format("the affinity mask ({} of {} cores)", own, all));
  if (share.ranks > 1) {
    const int cores = share.cores > 0 ? share.cores : limit.threads;
    tighten(share_of(cores, share.ranks), fmt::format("{} ranks that share {} cores", share.ranks, cores));
  }
  visit_cgroups(sources.cgroups, "cpu", [&](const Cgroup& group) {
    const std::optional<double> cpus = quota_of(group);
    if (!cpus) return;
    const char* file = group.version == 2 ? "cpu.max" : "cpu.cfs_quota_us";
    const std::string ranks = share.ranks > 1 ? fmt::format(", for {} ranks", share.ranks) : "";
    tighten(share_of(*cpus, share.ranks),
            fmt::format("the control group {} ({}: {:.4g} CPUs{})", group.name, file, *cpus, ranks));
  });
  return limit;
}

const ThreadUse& thread_use() { return use_of_process(); }

void use_machine_threads(const HostShare& share) {
  ThreadUse& use = use_of_process();
  use.machine = use.chosen = machine_thread_limit(share);
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  use.unbound = machine_thread_limit({.ranks = share.ranks, .cores = cores}, {.allowed = cores}).threads;
  const char* given = std::getenv("OMP_NUM_THREADS");
  const long threads = given ? std::strtol(given, nullptr, 10) : 0;  // "4,2" is 4 at the outermost level
  if (threads > 0)
    use.chosen = {.threads = static_cast<int>(std::min<long>(threads, kMaxThreads)),
                  .source = "OMP_NUM_THREADS"};
  use.chosen.threads = std::min(use.chosen.threads, kMaxThreads);
  set_num_threads(use.chosen.threads);
}

void use_threads_of(const std::string& source, int threads) {
  use_of_process().chosen = {.threads = threads, .source = source};
  set_num_threads(threads);
}

std::string thread_warning(const ThreadUse& use) {
  if (use.machine.source.empty()) return "";
  if (use.chosen.threads > use.machine.threads)
    return fmt::format(
        "{} = {} is more than the {} that this process can run at once (by {}): threads that wait for each "
        "other can make "
        "a step many times slower",
        use.chosen.source, use.chosen.threads, use.machine.threads, use.machine.source);
  const bool is_bound =
      use.machine.threads == 1 && use.unbound > 1 && use.machine.source.starts_with("the affinity mask");
  if (is_bound && std::getenv("OMPI_COMM_WORLD_SIZE"))
    return fmt::format(
        "one thread per rank, by {}: mpirun binds each of up to two ranks to one core by default; mpirun "
        "--bind-to none, "
        "or --map-by with more cores per rank, gives them all",
        use.machine.source);
  return "";
}

}  // namespace ingot
