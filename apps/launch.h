// The processes of a training: this one alone, or all that mpirun or srun started.
#pragma once

#include <atomic>
#include <functional>

#include "ingot/comm/comm_log.h"
#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"

namespace ingot {

// Calls body(world, mesh), with as many threads as this process's part of the machine has cores, unless the
// configuration or OMP_NUM_THREADS says how many. Under mpirun or srun an error in it ends all processes at
// once: the rank and the error on stderr, and its exit code. kUsage error if the configuration's layout does
// not fit the number of processes. is_told_to_end: set by a signal, and then what this process waits for is
// said. log: of operations between ranks, if wanted.
void launch(const RunConfig& config, const std::atomic<bool>& is_told_to_end,
            const std::function<void(Communicator& world, Mesh& mesh)>& body, CommLog* log = nullptr);

// True in a process that mpirun or srun started: they relay its output.
bool is_launched();
// True in the first of them, and in a process that was started alone.
bool is_first_rank();

// In a process that mpirun or srun started, but not as the first: waits a moment, so that of an error that
// all of them have met the first one's message is the one that is read.
void let_first_process_speak();

}  // namespace ingot
