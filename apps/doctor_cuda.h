// The part of `ingot doctor` about CUDA.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ingot {

struct CudaReport {
  std::vector<std::pair<std::string, std::string>> rows;  // name and value, to be printed
  std::vector<std::string> advice;                        // what is missing, and the fix
};

CudaReport cuda_report();

// Returns the CUDA libraries that this process has loaded so far, with their versions; empty without CUDA.
std::vector<std::pair<std::string, std::string>> loaded_cuda_libraries();

}  // namespace ingot
