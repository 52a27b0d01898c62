#include "tests/simulated_cuda/mpi/layout_cases.h"

namespace ingot {
namespace {

// 16-bit formats on a device differ from those on the CPU by the rounding of their products, as on one rank.
TEST_P(SimulatedLayout, HasTheLossesOfOneRank) {
  const auto& [name, config, layout, tolerance] = GetParam();
  Training alone(config);
  const std::vector<double> want = alone.losses(4);
  RunConfig there = config;
  there.parallel = layout();
  there.train.device = Device::kCuda;
  Mesh mesh = Mesh::make(*world, mesh_shape(there.parallel));
  Training together(there, mesh);
  const std::vector<double> got = together.losses(4);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance * want[i]) << i;
}

}  // namespace
}  // namespace ingot
