// Compares training on several ranks with the same training on one rank, and says how close the two must be.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/config_toml.h"
#include "ingot/plan/plan.h"
#include "tests/parallel/mpi/one_rank_gradients.h"

namespace ingot {

// Tolerance in f32: gradients are the same sums in a different order. The order changes each gradient by
// some 2^-24 of its size, and the losses of 30 steps by less than 1e-6.
inline constexpr double kF32 = 1e-6;
// Tolerance for rules that keep 8-bit states or iterate in bf16. They round at every step, in a direction
// that depends on the order of a sum. Noise of 2^-9 in every update changes the fall of the loss, which
// is a tenth of the loss, by at most 2^-9.
inline constexpr double kEdge = 0x1p-12;
// Tolerance in bf16: activations are computed row by row, so they do not depend on the layout. Matrix
// products sum the gradients of a micro-batch in f32; where such a sum changes, the bf16 copy of a weight
// may round in the other direction, by 2^-9.
inline constexpr double kBf16 = 2 * 0x1p-9;
// Tolerance for gradients reduced in bf16: each rank rounds its gradient by up to 2^-9, and the sum is
// rounded again. Over the elements of a gradient and over the steps these roundings add up like noise,
// and a loss changes by a fraction of it.
inline constexpr double kCompressed = 2 * 0x1p-9;

// The observable results of a training run.
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
    spoil_old_gradients(run.trainer);
    curve.losses.push_back(result.loss);
    curve.top1.push_back(result.top1);
    curve.norms.push_back(result.grad_norm);
    curve.scales.push_back(result.step.scaler.scale);
    if (result.raw.tokens > 0) curve.raw.insert(curve.raw.end(), {result.raw.ce, result.raw.objective});
  }
  std::vector<uint32_t> bytes(static_cast<size_t>(run.config.model.vocab));
  for (size_t id = 0; id < bytes.size(); ++id) bytes[id] = 1 + static_cast<uint32_t>(id) % 5;
  run.source.set_token_bytes(std::make_shared<const std::vector<uint32_t>>(bytes));
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

// Returns the curve of one rank that trains the whole model. Rank 0 computes it once per config and
// broadcasts it.
inline const TrainingCurve& one_rank_curve(RunConfig config) {
  static std::map<std::string, TrainingCurve> curves;
  config.parallel = {};
  const auto [place, is_new] = curves.try_emplace(config_toml(config, ConfigDocs::kNone));
  TrainingCurve& curve = place->second;
  if (!is_new) return curve;
  std::vector<double> eval(3);
  if (world->rank() == 0) {
    Training alone(config);
    curve = train(alone);
    eval = {curve.eval.loss, static_cast<double>(curve.eval.tokens), curve.eval.bits_per_byte};
    EXPECT_LT(curve.losses.back(), curve.losses.front() - 0.1) << "nothing was learnt";
  }
  from_rank_0(curve.initial);
  for (std::vector<double>* values :
       {&curve.losses, &curve.top1, &curve.norms, &curve.raw, &curve.scales, &eval})
    from_rank_0(*values);
  curve.eval.loss = eval[0];
  curve.eval.tokens = static_cast<int64_t>(eval[1]);
  curve.eval.bits_per_byte = eval[2];
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

// Expects that every arena of a training has as many bytes as `ingot plan` says, which has one process.
inline void expect_planned_arenas(const Training& training, const RunConfig& config) {
  std::optional<RankMemory> plan;
  for (RankMemory& memory : plan_rank_memory(config))
    if (std::ranges::binary_search(memory.ranks, world->rank())) plan = std::move(memory);
  ASSERT_TRUE(plan);
  const auto got = training.trainer.arenas();
  ASSERT_LE(got.size(), plan->items.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, plan->items[i].name);
    EXPECT_EQ(got[i].bytes, plan->items[i].bytes) << got[i].name << " of rank " << world->rank();
  }
}

// Expects the curve of one rank from the layout in `config`. tolerance: relative tolerance of each loss. On
// few ranks several layouts of a test are the same one, which is trained once.
inline void expect_one_rank_curve(const RunConfig& config, double tolerance, const std::string& what = "") {
  static std::map<std::string, double> compared;  // the smallest tolerance by configuration
  const auto [place, is_new] = compared.try_emplace(config_toml(config, ConfigDocs::kNone), tolerance);
  if (!is_new && place->second <= tolerance) return;
  place->second = tolerance;
  SCOPED_TRACE(what + " " + config.parallel.to_string());
  const TrainingCurve& want = one_rank_curve(config);
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  expect_planned_arenas(shared, config);
  const TrainingCurve got = train(shared);
  EXPECT_EQ(got.initial, want.initial) << "initial weights";
  for (size_t i = 0; i < want.losses.size(); ++i) {
    ASSERT_NEAR(got.losses[i], want.losses[i], tolerance * want.losses[i]) << "step " << i;
    // For a few of the 256 tokens, two predictions are equally likely.
    if (tolerance <= kEdge) {
      ASSERT_NEAR(got.top1[i], want.top1[i], 4.0 / 256) << "step " << i;
    }
    if (std::isfinite(want.norms[i])) {
      ASSERT_NEAR(got.norms[i], want.norms[i], 100 * tolerance * want.norms[i]) << "step " << i;
    }
  }
  EXPECT_EQ(got.scales, want.scales);
  ASSERT_EQ(got.raw.size(), want.raw.size());
  // The checked tokens come from a rank's own samples. Rank 0 has the samples of one rank unless dp or
  // fsdp splits its rows.
  if (config.parallel.dp * config.parallel.fsdp == 1) {
    for (size_t i = 0; i < want.raw.size(); ++i)
      EXPECT_NEAR(got.raw[i], want.raw[i], tolerance * want.raw[i]);
  }
  EXPECT_EQ(got.position, want.position);
  EXPECT_EQ(got.eval.tokens, want.eval.tokens);
  EXPECT_NEAR(got.eval.loss, want.eval.loss, tolerance * want.eval.loss);
  EXPECT_GT(want.eval.bits_per_byte, 0);
  EXPECT_NEAR(got.eval.bits_per_byte, want.eval.bits_per_byte, tolerance * want.eval.bits_per_byte);
  expect_equal_on_all_ranks(weights(shared.trainer));
  expect_one_rank_gradients(config);
}

}  // namespace ingot
