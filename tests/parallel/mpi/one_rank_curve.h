// The comparison of a training on several ranks with the same on one, and how near the two must be.
#pragma once

#include <vector>

#include "tests/parallel/mpi/ranks_fixture.h"

namespace ingot {

inline void expect_equal_on_all_ranks(std::vector<float> values) {
  std::vector<float> lowest = values;
  const Shape shape{std::ssize(values)};
  world->all_reduce("lowest", Tensor(lowest.data(), DType::f32, shape), ReduceOp::kMin);
  world->all_reduce("highest", Tensor(values.data(), DType::f32, shape), ReduceOp::kMax);
  EXPECT_EQ(lowest, values);
}

// What all of a layout's runs must show. tolerance: relative, of each of the losses.
inline void expect_one_rank_curve(const RunConfig& config, double tolerance) {
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  RunConfig one = config;
  one.parallel = {};
  Training alone(one);
  EXPECT_EQ(weights(shared.trainer), weights(alone.trainer)) << "initial weights";
  const std::vector<double> got = shared.losses(), want = alone.losses();
  EXPECT_LT(want.back(), want.front() - 0.1) << "nothing was learnt";
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * want[i]) << config.parallel.to_string() << ", step " << i;
  EXPECT_EQ(shared.loader.position(), alone.loader.position());
  const EvalResult got_eval = shared.trainer.evaluate(shared.source, 3000);
  const EvalResult want_eval = alone.trainer.evaluate(alone.source, 3000);
  EXPECT_EQ(got_eval.tokens, want_eval.tokens);
  EXPECT_NEAR(got_eval.loss, want_eval.loss, tolerance * want_eval.loss);
  expect_equal_on_all_ranks(weights(shared.trainer));
}

// f32: gradients are the same sums in another order. The order moves each by some 2^-24 of its size, and the
// losses of 30 steps by less than 1e-6.
inline constexpr double kF32 = 1e-6;
// Rules that keep 8-bit states or iterate in bf16 round at every step, and the order of a sum decides on
// which side. Noise of 2^-9 in every update moves what the loss has fallen by, a tenth of it, by 2^-9 at the
// most.
inline constexpr double kEdge = 0x1p-12;
// bf16 activations are computed row by row, so they do not depend on the layout; the gradients of a
// micro-batch are summed in f32 inside its products, and 2^-9 of a weight's copy flips where that sum does.
inline constexpr double kBf16 = 2 * 0x1p-9;

}  // namespace ingot
