#include "apps/libraries.h"

#include <fmt/core.h>

#include <algorithm>

#include "apps/doctor_cuda.h"
#include "ingot/ops/matmul.h"

#ifdef INGOT_WITH_MPI
#include "ingot/comm/mpi_job.h"
#endif

namespace ingot {

std::vector<std::pair<std::string, std::string>> libraries_in_use() {
  std::vector<std::pair<std::string, std::string>> found;
  // "oneDNN 2.6.3", or the name of one of Ingot's own engines, whose version is Ingot's.
  const std::string engine = matmul_engine(DType::f32);
  if (const size_t space = engine.rfind(' '); engine.starts_with("oneDNN ") && space != std::string::npos)
    found.emplace_back(engine.substr(0, space), engine.substr(space + 1));
#ifdef _OPENMP
  found.emplace_back("OpenMP", fmt::format("{}", _OPENMP));  // year and month of the standard
#endif
#ifdef INGOT_WITH_MPI
  if (is_mpi_process()) found.emplace_back("MPI", mpi_library());
#endif
  for (auto& library : loaded_cuda_libraries()) found.push_back(std::move(library));
  return found;
}

}  // namespace ingot
