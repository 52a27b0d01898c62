// The comparison of a training on several ranks with the same on one, and how near the two must be.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ingot/config/config_toml.h"
#include "tests/parallel/mpi/ranks_fixture.h"

namespace ingot {

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
// Each rank rounds its part of a gradient by up to 2^-9 of it, and the sum is rounded once more; over the
// elements of a gradient and the steps those roundings add up like noise, and a loss moves by a part of that.
inline constexpr double kCompressed = 2 * 0x1p-9;

// What a training shows of itself.
struct TrainingCurve {
  std::vector<float> initial;
  std::vector<double> losses, top1, norms, raw, scales;
  EvalResult eval;
  int64_t position = 0;
};

inline TrainingCurve train(Training& run) {
  TrainingCurve curve;
  curve.initial = weights(run.trainer);
  for (int step = 0; step < kSteps; ++step) {
    const StepResult result = run.trainer.step(run.loader, {.lr = run.config.optimizer.lr});
    curve.losses.push_back(result.loss);
    curve.top1.push_back(result.top1);
    curve.norms.push_back(result.grad_norm);
    curve.scales.push_back(result.loss_scale);
    if (result.raw.tokens > 0) curve.raw.push_back(result.raw.ce);
  }
  curve.eval = run.trainer.evaluate(run.source, 3000);
  curve.position = run.loader.position();
  return curve;
}

template <typename T>
void from_rank_0(std::vector<T>& values) {
  int64_t count = std::ssize(values);
  world->broadcast("count", Tensor(&count, DType::i64, {1}), 0);
  values.resize(static_cast<size_t>(count));
  world->broadcast("values", Tensor(values.data(), sizeof(T) == 8 ? DType::i64 : DType::i32, {count}), 0);
}

// Of the one rank that has everything: rank 0 computes it, once for each config.
inline const TrainingCurve& one_rank_curve(RunConfig config) {
  static std::map<std::string, TrainingCurve> curves;
  config.parallel = {};
  const auto [place, is_new] = curves.try_emplace(config_toml(config, ConfigDocs::kNone));
  TrainingCurve& curve = place->second;
  if (!is_new) return curve;
  std::vector<double> eval(2);
  if (world->rank() == 0) {
    Training alone(config);
    curve = train(alone);
    eval = {curve.eval.loss, static_cast<double>(curve.eval.tokens)};
    EXPECT_LT(curve.losses.back(), curve.losses.front() - 0.1) << "nothing was learnt";
  }
  from_rank_0(curve.initial);
  for (std::vector<double>* values :
       {&curve.losses, &curve.top1, &curve.norms, &curve.raw, &curve.scales, &eval})
    from_rank_0(*values);
  curve.eval.loss = eval[0];
  curve.eval.tokens = static_cast<int64_t>(eval[1]);
  curve.position = kSteps * config.train.batch_size * config.train.grad_accum;
  return curve;
}

inline void expect_equal_on_all_ranks(std::vector<float> values) {
  std::vector<float> lowest = values;
  const Shape shape{std::ssize(values)};
  world->all_reduce("lowest", Tensor(lowest.data(), DType::f32, shape), ReduceOp::kMin);
  world->all_reduce("highest", Tensor(values.data(), DType::f32, shape), ReduceOp::kMax);
  EXPECT_EQ(lowest, values);
}

// What a layout's run must show. tolerance: relative, of each of the losses.
inline void expect_one_rank_curve(const RunConfig& config, double tolerance, const std::string& what = "") {
  SCOPED_TRACE(what + " " + config.parallel.to_string());
  const TrainingCurve& want = one_rank_curve(config);
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  const TrainingCurve got = train(shared);
  EXPECT_EQ(got.initial, want.initial) << "initial weights";
  for (size_t i = 0; i < want.losses.size(); ++i) {
    ASSERT_NEAR(got.losses[i], want.losses[i], tolerance * want.losses[i]) << "step " << i;
    // Of 256 tokens, a few have two that are as likely.
    if (tolerance <= kEdge) {
      ASSERT_NEAR(got.top1[i], want.top1[i], 4.0 / 256) << "step " << i;
    }
    if (std::isfinite(want.norms[i])) {
      ASSERT_NEAR(got.norms[i], want.norms[i], 100 * tolerance * want.norms[i]) << "step " << i;
    }
  }
  EXPECT_EQ(got.scales, want.scales);
  ASSERT_EQ(got.raw.size(), want.raw.size());
  // Checked tokens are of a rank's own samples; rank 0 has those of one rank unless others share its rows.
  if (config.parallel.dp * config.parallel.fsdp == 1) {
    for (size_t i = 0; i < want.raw.size(); ++i)
      EXPECT_NEAR(got.raw[i], want.raw[i], tolerance * want.raw[i]);
  }
  EXPECT_EQ(got.position, want.position);
  EXPECT_EQ(got.eval.tokens, want.eval.tokens);
  EXPECT_NEAR(got.eval.loss, want.eval.loss, tolerance * want.eval.loss);
  expect_equal_on_all_ranks(weights(shared.trainer));
}

}  // namespace ingot
