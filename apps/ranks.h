// Starts the processes of a training: this process only, or all that mpirun or srun started.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "ingot/comm/comm_log.h"
#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"

namespace ingot {

// In a process that mpirun or srun started, sets how CUDA serves work that waits for other ranks. main()
// calls it before anything uses a device.
void prepare_ranks();
// In such a process, lets CUDA load all kernels of the program and its libraries at once if the layout has a
// pipeline. It must be called before anything uses a device.
void prepare_pipeline(const RunConfig& config);

// Calls body(mesh). The number of threads is this process's share of the machine's cores, unless the
// configuration or OMP_NUM_THREADS sets it. Under mpirun or srun, an error in `body` ends all processes at
// once, with the rank and the error on stderr and the error's exit code. Throws a kUsage error if the
// configuration's layout does not fit the number of processes.
// is_stop_requested: set by a signal; from then on, the process prints what it waits for.
// log: records the operations between ranks if not null.
void run_on_ranks(const RunConfig& config, const std::atomic<bool>& is_stop_requested,
                  const std::function<void(Mesh& mesh)>& body, CommLog* log = nullptr);

// The GPUs of this process, each as CUDA_VISIBLE_DEVICES names it.
std::vector<std::string> visible_gpus();

// Returns true in a process that mpirun or srun started; they relay its output.
bool is_launched();
// Returns true in the first of these processes, and in a process that was started without a launcher.
bool is_first_rank();

// If mpirun or srun started this process and it is not the first, waits a moment, so that the first process
// prints an error that all of them have.
void let_rank_zero_report_first();

}  // namespace ingot
