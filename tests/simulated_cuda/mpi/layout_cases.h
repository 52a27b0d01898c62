// Training in a layout on simulated devices, compared with one rank on the CPU.
#pragma once

#include <gmock/gmock.h>

#include <vector>

#include "tests/parallel/mpi/ranks_fixture.h"
#include "tests/simulated_cuda/mpi/small_run.h"

namespace ingot {

// A config and its layout, which may depend on the number of ranks.
struct DeviceCase {
  const char* name;
  RunConfig config;
  ParallelConfig (*layout)();
  double tolerance = 1e-5;
};
inline void PrintTo(const DeviceCase& c, std::ostream* out) { *out << c.name; }

inline RunConfig in(RunConfig c, DType compute) {
  c.precision.compute = compute;
  return c;
}

class SimulatedLayout : public ::testing::TestWithParam<DeviceCase> {};

}  // namespace ingot
