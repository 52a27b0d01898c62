#include "tests/parallel/mpi/one_rank_curve.h"
#include "tests/simulated_cuda/mpi/layout_cases.h"

namespace ingot {
namespace {

constexpr int kFew = 3;  // a pipeline's first step sends through the host

// 16-bit formats on a device differ from those on the CPU by the rounding of their products, as on one rank.
TEST_P(SimulatedLayout, HasTheLossesOfOneRank) {
  const auto& [name, config, layout, tolerance] = GetParam();
  Training alone(config);
  const std::vector<double> want = alone.losses(kFew);
  RunConfig there = config;
  there.parallel = layout();
  there.train.device = Device::kCuda;
  Mesh mesh = Mesh::make(*world, mesh_shape(there.parallel));
  Training together(there, mesh);
  expect_planned_arenas(together, there);
  const std::vector<double> got = together.losses(kFew);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance * want[i]) << i;
  const int64_t tokens = 4 * config.train.batch_size * config.model.context;
  const EvalResult want_eval = alone.trainer.evaluate(alone.source, tokens),
                   got_eval = together.trainer.evaluate(together.source, tokens);
  EXPECT_EQ(got_eval.tokens, want_eval.tokens);
  EXPECT_NEAR(got_eval.loss, want_eval.loss, tolerance * want_eval.loss);
}

}  // namespace
}  // namespace ingot
