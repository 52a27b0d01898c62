// Tests activation checkpointing in the trainer: the weights after some steps have the same bits with and
// without it, and the activation arena stays within the budget.
#include <gtest/gtest.h>

#include <cmath>

#include "ingot/parallel/parallelize.h"
#include "ingot/profile/bench_checkpointing.h"
#include "ingot/train/trainer.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

RunConfig config(DType compute) {
  RunConfig c;
  c.model = {
      .layers = 4, .heads = 4, .kv_heads = 2, .width = 32, .context = 24, .vocab = 256, .dropout = 0.1};
  c.train.batch_size = 2;
  c.train.grad_accum = 2;
  c.precision.compute = compute;
  return c;
}

size_t activation_bytes(const Trainer& trainer) {
  for (const Trainer::ArenaUse& use : trainer.arenas())
    if (use.name == "activations") return use.bytes;
  return 0;
}

std::vector<float> weights_after(const RunConfig& c, int steps, size_t* bytes = nullptr) {
  SmallTraining training(c, squares());
  Trainer& trainer = training.trainer;
  for (int i = 0; i < steps; ++i) trainer.step(training.loader, {.lr = 1e-3});
  if (bytes) *bytes = activation_bytes(trainer);
  std::vector<float> weights;
  for (int u = 0; u < trainer.layout().model->params().units(); ++u) {
    const Tensor master = trainer.params().buffers(u).master;
    weights.insert(weights.end(), master.as<float>(), master.as<float>() + master.elements());
  }
  return weights;
}

TEST(RecomputeTraining, EveryPolicyTrainsTheSameWeights) {
  for (DType compute : {DType::f32, DType::bf16, DType::f16}) {
    RunConfig c = config(compute);
    c.activations.policy = RecomputePolicy::kNone;
    size_t all_bytes = 0;
    const std::vector<float> want = weights_after(c, 3, &all_bytes);
    for (RecomputePolicy policy : {RecomputePolicy::kSelective, RecomputePolicy::kBlock,
                                   RecomputePolicy::kEveryK, RecomputePolicy::kSqrt}) {
      c.activations.policy = policy;
      size_t bytes = 0;
      EXPECT_TRUE(weights_after(c, 3, &bytes) == want) << static_cast<int>(policy);
      EXPECT_LT(bytes, all_bytes) << static_cast<int>(policy);
    }
    c.activations.policy = RecomputePolicy::kAuto;
    for (size_t budget : {all_bytes, all_bytes / 2, all_bytes / 3}) {
      c.activations.budget_bytes = static_cast<int64_t>(budget);
      size_t bytes = 0;
      EXPECT_TRUE(weights_after(c, 3, &bytes) == want) << budget;
      EXPECT_LE(bytes, budget);
      EXPECT_GT(bytes, budget / 4);
    }
  }
}

TEST(RecomputeTraining, ABudgetThatHoldsNothingIsRefused) {
  RunConfig c = config(DType::f32);
  c.activations.policy = RecomputePolicy::kAuto;
  c.activations.budget_bytes = 1000;
  EXPECT_THROW(parallelize(c), Error);
}

TEST(RecomputeBench, ComparesEveryPolicyWithKeepingAll) {
  const CheckpointingBench bench = bench_checkpointing(config(DType::bf16), 2);
  ASSERT_EQ(bench.rows.size(), 12u);
  EXPECT_EQ(bench.rows[0].policy, "none");
  EXPECT_EQ(bench.rows[0].time_change, 0);
  EXPECT_EQ(bench.rows[0].recompute_ms, 0);
  EXPECT_EQ(bench.rows[1].policy, "none again");  // the control: the same policy again
  EXPECT_EQ(bench.rows[1].bytes_change, 0);
  for (const CheckpointingBench::Row& row : bench.rows) {
    EXPECT_LE(row.time_change_low, row.time_change) << row.policy;
    EXPECT_GE(row.time_change_high, row.time_change) << row.policy;
  }
  for (size_t i = 2; i < bench.rows.size(); ++i) {
    const CheckpointingBench::Row& row = bench.rows[i];
    EXPECT_LT(row.bytes_change, 0) << row.policy;
    EXPECT_GT(row.step_ms, 0) << row.policy;
    const bool has_products_again = row.policy.find("attention") != std::string::npos ||
                                    row.policy.find("mlp") != std::string::npos ||
                                    row.policy.find("block") != std::string::npos || row.policy == "sqrt";
    EXPECT_EQ(row.recompute_ms > 0, has_products_again || row.policy == "embedding") << row.policy;
  }
}

}  // namespace
}  // namespace ingot
