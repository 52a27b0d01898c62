// activations.policy = "auto" without a budget on a device: the plan of memory decides, so no device is
// needed.
#include "ingot/memory/activation_budget.h"

#include <gtest/gtest.h>

#include "ingot/core/error.h"
#include "ingot/memory/prepare_run.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

class ActivationBudget : public ::testing::Test {
 protected:
  RunConfig config =
      small_config({"model.layers=6", "model.width=64", "train.device=cuda", "activations.policy=auto"});
  uint64_t everything = plan_memory(config).device_bytes();

  RecomputeConfig with(uint64_t device_bytes) const {
    const Mesh alone = Mesh::alone();
    return with_activation_budget(config, alone,
                                  {.host = {},
                                   .device = {.bytes = device_bytes, .source = "the test"},
                                   .machine = "here",
                                   .device_name = "device 0"});
  }
  uint64_t device_bytes(const RecomputeConfig& activations) const {
    RunConfig changed = config;
    changed.activations = activations;
    return plan_memory(changed).device_bytes();
  }
};

TEST_F(ActivationBudget, KeepsEverythingWhereItFits) {
  EXPECT_EQ(with(everything).budget_bytes, 0);
  EXPECT_EQ(everything, device_bytes({.policy = RecomputePolicy::kNone}));
  EXPECT_GT(everything, device_bytes({.policy = RecomputePolicy::kSelective}));
}

TEST_F(ActivationBudget, IsWhatTheDeviceHasLeft) {
  const uint64_t least = device_bytes({.policy = RecomputePolicy::kSqrt});
  for (const uint64_t available : {everything - 1, (everything + 3 * least) / 4}) {
    RecomputeConfig chosen = with(available);
    EXPECT_EQ(chosen.policy, RecomputePolicy::kAuto);
    ASSERT_GT(chosen.budget_bytes, 0);
    EXPECT_LE(device_bytes(chosen), available);
  }
  EXPECT_LT(with((everything + 3 * least) / 4).budget_bytes, with(everything - 1).budget_bytes);
}

TEST_F(ActivationBudget, IsUnchangedWhereNoneHelpsAndWhereOneIsGiven) {
  EXPECT_EQ(with(1000).budget_bytes, 0);
  config.activations.budget_bytes = 12345;
  EXPECT_EQ(with(1000).budget_bytes, 12345);
  config.activations = {.policy = RecomputePolicy::kNone};
  EXPECT_EQ(with(1000).policy, RecomputePolicy::kNone);
}

// A start from the program and one from Python prepare the run alike.
TEST_F(ActivationBudget, IsPartOfAPreparedRun) {
  const Mesh alone = Mesh::alone();
  MemoryLimits limits{.host = {},
                      .device = {.bytes = everything, .source = "the test"},
                      .machine = "here",
                      .device_name = "device 0"};
  config.checkpoint.is_async = false;
  EXPECT_EQ(prepare_run(config, alone, limits).config.activations.budget_bytes, 0);
  limits.device.bytes = everything - 1;
  const PreparedRun run = prepare_run(config, alone, limits);
  EXPECT_GT(run.config.activations.budget_bytes, 0);
  EXPECT_LE(plan_memory(run.config).device_bytes(), limits.device.bytes);
  config.activations.policy = RecomputePolicy::kNone;
  EXPECT_THROW(static_cast<void>(prepare_run(config, alone, limits)), Error);
  config.train.is_overcommitted = true;
  EXPECT_NE(prepare_run(config, alone, limits).warning, "");
}

}  // namespace
}  // namespace ingot
