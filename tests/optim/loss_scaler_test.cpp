#include "ingot/optim/loss_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/reference/error_of.h"

namespace ingot {
namespace {

// tools/export_loss_scaler_golden.py writes the file.
TEST(LossScaler, MatchesPyTorchStepByStep) {
  const auto records = nlohmann::json::parse(std::ifstream(INGOT_TEST_DATA "/optim/loss_scaler.json"));
  ASSERT_EQ(records.size(), 4u);
  for (const auto& record : records) {
    LossScaler scaler({.init = record["init"], .growth_interval = record["growth_interval"], .min = 1e-30});
    EXPECT_EQ(scaler.scale(), record["init"].get<double>());
    for (size_t i = 0; i < record["scales"].size(); ++i) {
      if (record["overflows"][i].get<bool>()) {
        EXPECT_TRUE(scaler.overflowed());
      } else {
        scaler.step_made();
      }
      ASSERT_EQ(scaler.scale(), record["scales"][i].get<double>()) << "step " << i;
    }
  }
}

// Counts the overflows since the scale last grew: the first two change nothing, and each one
// after them halves the scale.
TEST(LossScaler, HysteresisToleratesOverflowsUntilTheScaleGrows) {
  LossScaler scaler({.init = 1024, .growth_interval = 3, .hysteresis = 3});
  std::vector<double> scales;
  for (const char step : std::string("oo.o.oo...o..ooo")) {
    if (step == 'o') {
      EXPECT_TRUE(scaler.overflowed());
    } else {
      scaler.step_made();
    }
    scales.push_back(scaler.scale());
  }
  EXPECT_THAT(scales, ::testing::ElementsAre(1024, 1024, 1024, 512, 512, 256, 128, 128, 128, 256, 256, 256,
                                             256, 256, 128, 64));
}

TEST(LossScaler, NeverFallsBelowItsMinimum) {
  LossScaler scaler({.init = 10, .growth_interval = 2, .min = 4});
  EXPECT_TRUE(scaler.overflowed());
  EXPECT_EQ(scaler.scale(), 5);
  EXPECT_TRUE(scaler.overflowed());
  EXPECT_EQ(scaler.scale(), 4);
  scaler.step_made();
  EXPECT_FALSE(scaler.overflowed());
  EXPECT_EQ(scaler.state().good_steps, 1) << "nothing changed";
  scaler.step_made();
  EXPECT_EQ(scaler.scale(), 8);
}

TEST(LossScaler, AConstantScaleNeverChanges) {
  for (LossScaler scaler : {LossScaler(), LossScaler({.constant = 256})}) {
    const double scale = scaler.scale();
    EXPECT_FALSE(scaler.is_dynamic());
    for (int i = 0; i < 5000; ++i) scaler.step_made();
    EXPECT_FALSE(scaler.overflowed());
    EXPECT_EQ(scaler.scale(), scale);
  }
  EXPECT_EQ(LossScaler().scale(), 1);
}

TEST(LossScaler, ContinuesFromItsSavedState) {
  const LossScalerConfig config{.init = 4096, .growth_interval = 4, .hysteresis = 2};
  LossScaler whole(config);
  for (int i = 0; i < 3; ++i) whole.step_made();
  whole.overflowed();
  whole.step_made();
  LossScaler resumed(config);
  resumed.set_state(whole.state());
  for (LossScaler* scaler : {&whole, &resumed}) {
    scaler->overflowed();
    for (int i = 0; i < 4; ++i) scaler->step_made();
    scaler->overflowed();
  }
  EXPECT_EQ(resumed.scale(), whole.scale());
  EXPECT_EQ(whole.scale(), 4096);
}

TEST(LossScaler, RefusesInvalidOptions) {
  const auto refusal = [](const LossScalerConfig& config) { return usage_error([&] { config.validate(); }); };
  EXPECT_EQ(refusal({}), "no error");
  EXPECT_THAT(refusal({.constant = 0}), ::testing::HasSubstr("precision.loss_scale must be above 0"));
  EXPECT_THAT(refusal({.init = 1e39}), ::testing::HasSubstr("precision.loss_scale_init must be above 0"));
  EXPECT_THAT(refusal({.init = 2, .min = 4}),
              ::testing::HasSubstr("loss_scale_min must be at most loss_scale_init = 2, got 4"));
  EXPECT_THAT(refusal({.growth_interval = 0}),
              ::testing::HasSubstr("loss_scale_interval must be at least 1"));
  EXPECT_THAT(refusal({.hysteresis = 0}), ::testing::HasSubstr("loss_scale_hysteresis must be at least 1"));
}

}  // namespace
}  // namespace ingot
