// Lists the libraries that this process uses for computation and communication, for run.json.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ingot {

// Returns names and versions: the engine of matrix products, OpenMP, MPI in a process that mpirun started,
// and the CUDA libraries that are loaded so far.
std::vector<std::pair<std::string, std::string>> libraries_in_use();

}  // namespace ingot
