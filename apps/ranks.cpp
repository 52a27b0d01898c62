#include "apps/ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "ingot/config/device_support.h"
#include "ingot/core/cuda/cpu_affinity.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/process/thread_limit.h"
#include "ingot/parallel/parallelize.h"

#ifdef INGOT_WITH_MPI
#include "ingot/comm/mpi_job.h"
#endif

namespace ingot {
namespace {

#ifdef INGOT_WITH_MPI
// The ranks of a machine use its devices round-robin. Each runs on the CPUs of its device's NUMA node, so the
// memory that it takes is near the device.
void choose_device(const RunConfig& config, [[maybe_unused]] const MpiJob& job) {
  require_device(config);
  if constexpr (kHasCuda) {
    if (config.train.device != Device::kCuda) return;
    const auto devices = static_cast<int>(cuda::devices().size());
    cuda::use_device(job.rank_on_node() % devices);
    require_device(config);  // the machine's devices may differ
    bind_to_cpus(cpus_near(cuda::device_bus()));
  }
}
#endif

// Returns the rank that mpirun or srun gave this process; null if neither started it.
const char* rank_of_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(name)) return rank;
  return nullptr;
}

}  // namespace

// A stream that waits for another rank must hold up no other stream, so each gets a queue of its own. What
// the environment says is left as it is.
void prepare_ranks() {
  if (rank_of_launcher()) ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

// CUDA by default loads a kernel at its first launch, which may wait for the whole device. A stage that
// receives early would then wait for a message that depends on its own next kernel. Collectives cannot: all
// ranks start them in one order, so what a collective waits for was submitted before it, and NCCL loads its
// own kernels when a communicator is made.
void prepare_pipeline(const RunConfig& config) {
  if (rank_of_launcher() && config.parallel.pp > 1) ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

void run_on_ranks(const RunConfig& config, [[maybe_unused]] const std::atomic<bool>& is_stop_requested,
                  const std::function<void(Mesh& mesh)>& body, [[maybe_unused]] CommLog* log) {
#ifdef INGOT_WITH_MPI
  if (is_mpi_process()) {
    MpiJob job({.timeout_s = config.parallel.timeout_s,
                .message_delay_s = config.parallel.delay_s,
                .verifies = config.parallel.verifies,
                .is_stop_requested = &is_stop_requested,
                .log = log});
    std::optional<Mesh> mesh;  // outlives an error, because other ranks may still communicate with this one
    try {
      check_layout(config, job.world().size());
      choose_device(config, job);
      use_machine_threads({.ranks = job.ranks_on_node(), .cores = job.cores_on_node()});
      mesh.emplace(Mesh::make(job.world(), mesh_shape(config.parallel)));
      body(*mesh);
      return;
    } catch (const Error& error) {
      let_rank_zero_report_first();
      job.abort(error.what(), exit_code(error.kind()));
    } catch (const std::bad_alloc&) {
      job.abort("out of memory: lower train.batch_size, or take more ranks", exit_code(ErrorKind::kMemory));
    } catch (const std::exception& error) {
      job.abort(error.what(), exit_code(ErrorKind::kInternal));
    }
  }
#endif
  check_layout(config, 1);
  Mesh mesh = Mesh::alone(config.parallel.timeout_s);
  body(mesh);
}

std::vector<std::string> visible_gpus() {
  std::vector<std::string> gpus;
  if constexpr (kHasCuda) {
    std::istringstream names(std::getenv("CUDA_VISIBLE_DEVICES") ?: "");
    for (size_t i = 0; i < cuda::devices().size(); ++i) {
      std::string name;
      gpus.push_back(std::getline(names, name, ',') ? name : std::to_string(i));
    }
  }
  return gpus;
}

bool is_launched() { return rank_of_launcher() != nullptr; }

bool is_first_rank() {
  const char* rank = rank_of_launcher();
  return !rank || std::strcmp(rank, "0") == 0;
}

void let_rank_zero_report_first() {
  if (!is_first_rank()) std::this_thread::sleep_for(std::chrono::seconds(1));
}

}  // namespace ingot
