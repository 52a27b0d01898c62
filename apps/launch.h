// The processes of a training: this one alone, or all that mpirun or srun started.
#pragma once

#include <functional>

#include "ingot/comm/mesh.h"
#include "ingot/train/config.h"

namespace ingot {

// Calls body(world, mesh), with as many threads as this process's part of the machine has cores, unless the
// configuration or OMP_NUM_THREADS says how many. Under mpirun or srun an error in it ends all processes at
// once: the rank and the error on stderr, and its exit code. kUsage error if the configuration's layout does
// not fit the number of processes.
void launch(const RunConfig& config, const std::function<void(Communicator& world, Mesh& mesh)>& body);

// In a process that mpirun or srun started, but not as the first: waits a moment, so that of an error that
// all of them have met the first one's message is the one that is read.
void let_first_process_speak();

}  // namespace ingot
