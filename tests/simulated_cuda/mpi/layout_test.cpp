#include "tests/simulated_cuda/mpi/layout_cases.h"

namespace ingot {
namespace {

TEST_P(SimulatedLayout, HasTheLossesOfOneRank) {
  expect_one_cpu_rank(on_devices(GetParam().config, GetParam().layout()));
}

}  // namespace
}  // namespace ingot
