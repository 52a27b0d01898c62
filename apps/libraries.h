// The libraries that this process computes and communicates with, for run.json.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ingot {

// Name and version: the engines of the products, OpenMP, MPI in a process that mpirun started, and of CUDA's
// libraries those that are loaded by now.
std::vector<std::pair<std::string, std::string>> libraries_in_use();

}  // namespace ingot
